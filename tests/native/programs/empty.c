/* attention_forward that does nothing: what is measured and traced is the way to it. */
#define EXPORTED __attribute__((visibility("default"), noinline))
EXPORTED void attention_forward(float *q, float *k, float *v, float *o, int batch_size, int seq_len)
{
    (void)q, (void)k, (void)v, (void)o, (void)batch_size, (void)seq_len;
    __asm__ volatile("");
}
EXPORTED void beside(float *q, float *k, float *v, float *o, int batch_size, int seq_len)
{
    (void)q, (void)k, (void)v, (void)o, (void)batch_size, (void)seq_len;
    __asm__ volatile("");
}
