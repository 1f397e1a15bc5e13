/* Opening files to read them: a FIFO that somebody put in the place of one would hold the engine for ever. */
#define _GNU_SOURCE
#include "stage1.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns a descriptor, or -1 with errno: EINVAL for what is no regular file. */
int pk_open_regular(const char *path)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || (!fstat(fd, &about) && S_ISREG(about.st_mode)))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}
