/* Lists of Python's bytes for decoders that want objects. Python's functions come as pointers: one library serves every
 * release of Python. Called with the interpreter's lock held. */
#include <stddef.h>
#include <stdint.h>

typedef void *(*make_bytes)(const char *, ptrdiff_t);
typedef void *(*make_list)(ptrdiff_t);
typedef int (*set_item)(void *, ptrdiff_t, void *); /* takes the reference over, also where it fails */
typedef void (*change_count)(void *);

typedef struct {
    make_bytes bytes;
    make_list list;
    set_item set;
    change_count acquire;
    change_count release;
    void *none;
} python;

/* NULL after an exception was set. A length of -1 is None. */
void *tg_bytes(const python *py, const uint8_t *const *addresses, const int32_t *lengths, int64_t count)
{
    void *list = py->list(count);
    for (int64_t i = 0; list != NULL && i < count; i++) {
        void *one = py->none;
        if (lengths[i] < 0)
            py->acquire(one);
        else
            one = py->bytes((const char *)addresses[i], lengths[i]);
        if (one == NULL || py->set(list, i, one) != 0) {
            py->release(list);
            return NULL;
        }
    }
    return list;
}
