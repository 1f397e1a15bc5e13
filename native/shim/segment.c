/* The shared file: who makes it, who owns which slot, how a record gets into a ring.
 *
 * Nothing here waits for another thread or process. A thread that finds no segment or no slot counts by atomic
 * additions, first privately, then in the segment: every call is counted once. */
#define _GNU_SOURCE
#include "stage1.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum segment_state { ABSENT, MAKING, READY, FAILED };

static struct pk_control inert;             /* PK_OFF: in programs that are no engine */
static struct pk_control fresh;             /* in a forked child, until its own is there */
static struct pk_symbol bound[PK_HOW_MANY]; /* what the next segment has to say of the symbols */
static struct {
    enum pk_stage2 state;
    char message[PK_PATH];
} stage2;
static _Atomic uint64_t early[PK_HOW_MANY]; /* calls that found no segment to be counted in */
static _Atomic int state = ABSENT;
static char *segment;
static char path[PK_PATH];
static _Thread_local bool refused; /* no slot was free */

struct pk_control *pk_control = &inert;
_Thread_local struct pk_slot *pk_self;

static struct pk_symbol *symbols_at(char *base) { return (struct pk_symbol *)(base + PK_SYMBOLS_AT); }
static struct pk_slot *slots_at(char *base) { return (struct pk_slot *)(base + PK_SLOTS_AT); }
static size_t offset_of_slot(const struct pk_slot *slot) { return (size_t)((const char *)slot - segment); }

static size_t offset_of_ring(const struct pk_slot *slot)
{
    return PK_RINGS_AT + (size_t)(slot - slots_at(segment)) * PK_RING_BYTES;
}

static uint64_t start_time(void)
{
    char text[1024];
    int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = 0;
    const char *at = strrchr(text, ')'); /* the name before it may hold anything */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

static bool name_segment(uint64_t started)
{
    const char *directory = getenv("PATCHKIT_SHIM_DIRECTORY");
    struct pk_text text = {path, path + sizeof path};
    if (directory && *directory && *directory != '/')
        return false; /* the file is opened again later, wherever the process has gone */
    pk_append(&text, directory && *directory ? directory : "/dev/shm");
    pk_append(&text, "/patchkit-");
    pk_append_number(&text, (uint64_t)getpid());
    pk_append(&text, "-");
    pk_append_number(&text, started);
    return text.at + 1 < text.end;
}

/* Makes sure that memory is there: a write to a hole of a full tmpfs would be a SIGBUS. */
static bool reserve(int fd, size_t at, size_t length)
{
    errno = posix_fallocate(fd, (off_t)at, (off_t)length);
    return !errno;
}

/* The file is opened anew: an engine that closes all descriptors may have given ours to something else. */
static bool reserve_later(size_t at, size_t length)
{
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool there = reserve(fd, at, length);
    close(fd);
    return there;
}

static char *make_file(void)
{
    int fd = pk_create(path);
    if (fd < 0)
        return NULL;
    char *made = MAP_FAILED;
    if (!fchmod(fd, 0600) && !ftruncate(fd, PK_SEGMENT_BYTES) && reserve(fd, 0, PK_SLOTS_AT))
        made = mmap(NULL, PK_SEGMENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = errno;
    close(fd);
    if (made == MAP_FAILED)
        unlink(path);
    errno = error;
    return made == MAP_FAILED ? NULL : made;
}

/* Seven whole numbers, as `patchkit native` writes them; floating point numbers as their bits. */
static void read_settings(struct pk_settings *settings)
{
    const char *at = getenv("PATCHKIT_SHIM_SETTINGS");
    uint64_t numbers[7] = {PK_COUNT};
    for (int i = 0; at && *at && i < 7; i++) {
        char *end;
        uint64_t number = strtoull(at, &end, 10);
        if (end == at)
            break; /* no number: what is left stays as it is without the variable */
        numbers[i] = number;
        at = *end == ':' ? end + 1 : NULL;
    }
    settings->mode = numbers[0] <= PK_REPLACE ? (uint32_t)numbers[0] : PK_COUNT;
    settings->every = (uint32_t)numbers[1];
    settings->qk_scale = numbers[2];
    settings->window = (int32_t)numbers[3];
    settings->rope_offset = (int32_t)numbers[4];
    settings->rope_theta = numbers[5];
    settings->tolerance = numbers[6];
}

static void publish(char *made, uint64_t started)
{
    struct pk_control *control = (struct pk_control *)made;
    if (pk_control == &fresh)
        control->settings = fresh.settings;
    else
        read_settings(&control->settings);
    control->version = PK_VERSION;
    control->symbols = PK_HOW_MANY;
    control->length = PK_SEGMENT_BYTES;
    control->pid = (uint32_t)getpid();
    control->uid = (uint32_t)geteuid();
    control->start_time = started;
    control->stage2 = stage2.state;
    memcpy(control->message, stage2.message, sizeof stage2.message);
    if (readlink("/proc/self/exe", control->program, sizeof control->program - 1) < 0)
        control->program[0] = 0;
    for (unsigned i = 0; i < PK_HOW_MANY; i++) {
        symbols_at(made)[i] = bound[i];
        strncpy(symbols_at(made)[i].name, pk_names[i], PK_NAME - 1);
    }
    atomic_thread_fence(memory_order_release);
    control->magic = PK_MAGIC; /* last: a reader takes nothing before it */
    segment = made;
    pk_control = control;
}

static void move_early(void)
{
    for (unsigned i = 0; i < PK_HOW_MANY; i++) {
        uint64_t calls = atomic_exchange(&early[i], 0);
        if (calls)
            __atomic_fetch_add(&pk_control->overflow[i], calls, __ATOMIC_RELAXED);
    }
}

bool pk_open_segment(void)
{
    int expected = ABSENT;
    if (!atomic_compare_exchange_strong(&state, &expected, MAKING))
        return false;
    uint64_t started = start_time();
    errno = EINVAL;
    char *made = name_segment(started) ? make_file() : NULL;
    if (!made) {
        char number[24];
        struct pk_text text = {number, number + sizeof number};
        pk_append_number(&text, (uint64_t)errno);
        pk_control = &inert;
        atomic_store(&state, FAILED);
        pk_say("calls are passed through and not counted: no segment in shared memory, errno ", number);
        return false;
    }
    publish(made, started);
    atomic_store(&state, READY);
    move_early();
    return true;
}

/* Whether this process counts. */
bool pk_is_awake(void) { return pk_control != &inert; }

static bool is_gone(uint32_t tid) { return tid && syscall(SYS_tgkill, getpid(), (pid_t)tid, 0) && errno == ESRCH; }

/* Takes over the slot of a thread that has ended; what it counted stays in it. */
static struct pk_slot *adopt(uint32_t tid)
{
    for (struct pk_slot *slot = slots_at(segment), *end = slot + PK_SLOTS; slot < end; slot++) {
        uint32_t owner = __atomic_load_n(&slot->tid, __ATOMIC_RELAXED);
        if (is_gone(owner) && __atomic_compare_exchange_n(&slot->tid, &owner, tid, false, __ATOMIC_ACQ_REL, 0)) {
            slot->writing = 0;
            return slot;
        }
    }
    return NULL;
}

static bool claim(void)
{
    uint32_t tid = (uint32_t)syscall(SYS_gettid);
    struct pk_slot *slot = NULL;
    if (refused)
        return false;
    uint32_t number = __atomic_load_n(&pk_control->claimed, __ATOMIC_RELAXED);
    if (number < PK_SLOTS)
        number = __atomic_fetch_add(&pk_control->claimed, 1, __ATOMIC_RELAXED);
    if (number < PK_SLOTS) {
        slot = slots_at(segment) + number;
        if (reserve_later(offset_of_slot(slot), sizeof *slot))
            __atomic_store_n(&slot->tid, tid, __ATOMIC_RELEASE);
        else
            slot = NULL;
    } else {
        slot = adopt(tid);
    }
    refused = !slot;
    pk_self = slot;
    return slot;
}

/* Counts a call of a thread that has no slot, and gives it one where there is one. */
void pk_count(unsigned index)
{
    if (atomic_load(&state) == ABSENT)
        pk_open_segment();
    if (atomic_load(&state) == READY && claim()) {
        pk_self->calls[index]++;
        return;
    }
    atomic_fetch_add(&early[index], 1);
    if (atomic_load(&state) == READY)
        move_early();
}

static bool has_ring(struct pk_slot *slot)
{
    if (!slot->ringed)
        slot->ringed = reserve_later(offset_of_ring(slot), PK_RING_BYTES) ? 1 : 2;
    return slot->ringed == 1;
}

/* Only the owner of a slot writes to its ring, and never waits: the oldest record is overwritten. */
void pk_record(const struct pk_record *record)
{
    int saved = errno;
    struct pk_slot *slot = pk_self;
    if (!slot) {
        __atomic_fetch_add(&pk_control->unrecorded, 1, __ATOMIC_RELAXED);
        return;
    }
    if (slot->writing || !has_ring(slot)) { /* writing: a signal handler, on top of us */
        slot->unrecorded++;
        errno = saved;
        return;
    }
    slot->writing = 1;
    atomic_signal_fence(memory_order_seq_cst);
    uint64_t number = slot->written;
    struct pk_record *to = (struct pk_record *)(segment + offset_of_ring(slot)) + number % PK_RECORDS;
    __atomic_store_n(&to->sequence, 0, __ATOMIC_RELAXED);
    atomic_thread_fence(memory_order_release);
    /* Word by word: without vector registers memcpy becomes `rep movs`, which takes longer to start than this. */
    const uint64_t *words = (const uint64_t *)record;
    for (size_t i = 1; i < sizeof *to / sizeof *words; i++)
        ((uint64_t *)to)[i] = words[i];
    to->tid = slot->tid;
    __atomic_store_n(&to->sequence, number + 1, __ATOMIC_RELEASE);
    __atomic_store_n(&slot->written, number + 1, __ATOMIC_RELEASE);
    atomic_signal_fence(memory_order_seq_cst);
    slot->writing = 0;
}

/* In the child, where no other thread is: the parent's segment is the parent's. The child's is made at its first call,
 * with the mode that the parent had. */
void pk_forked(void)
{
    if (atomic_load(&state) == FAILED || pk_control == &inert)
        return;
    pk_forked_binding();
    fresh.settings = pk_control->settings;
    pk_control = &fresh;
    pk_self = NULL;
    refused = false;
    for (unsigned i = 0; i < PK_HOW_MANY; i++)
        atomic_store(&early[i], 0);
    atomic_store(&state, ABSENT);
    if (fresh.settings.mode == PK_OFF)
        pk_open_segment(); /* no call would come here, and nobody could set another mode */
}

void pk_bound_to(unsigned index, const void *address, const char *object, enum pk_way way)
{
    struct pk_symbol *own = &bound[index];
    memcpy(own->object, object, sizeof own->object);
    own->address = (uint64_t)(uintptr_t)address;
    own->way = way;
    if (atomic_load(&state) == READY) {
        struct pk_symbol *shared = &symbols_at(segment)[index];
        memcpy(shared->object, own->object, sizeof own->object);
        shared->address = own->address;
        __atomic_store_n(&shared->way, own->way, __ATOMIC_RELEASE);
    }
}

void pk_typed(unsigned index)
{
    bound[index].typed = 1;
    if (atomic_load(&state) == READY)
        symbols_at(segment)[index].typed = 1;
}

void pk_tell_stage2(enum pk_stage2 now, const char *message)
{
    struct pk_text text = {stage2.message, stage2.message + sizeof stage2.message};
    pk_append(&text, message);
    stage2.state = now;
    if (atomic_load(&state) == READY) {
        memcpy(pk_control->message, stage2.message, sizeof stage2.message);
        __atomic_store_n(&pk_control->stage2, now, __ATOMIC_RELEASE);
    }
}
