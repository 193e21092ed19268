/* Lists of Python's bytes: made for decoders that want objects, and read. Python's functions come as pointers: one library serves
 * every release of Python. Called with the interpreter's lock held. */
#include <stddef.h>
#include <stdint.h>

typedef void *(*make_bytes)(const char *, ptrdiff_t);
typedef void *(*make_list)(ptrdiff_t);
typedef int (*set_item)(void *, ptrdiff_t, void *); /* takes the reference over, also where it fails */
typedef void (*change_count)(void *);
typedef void *(*get_item)(void *, ptrdiff_t); /* its reference stays the list's */
typedef int (*read_bytes)(void *, char **, ptrdiff_t *);

typedef struct {
    make_bytes bytes;
    make_list list;
    set_item set;
    change_count acquire;
    change_count release;
    get_item get;
    read_bytes read;
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

/* Where the bytes of a list are, from one item on, valid as long as the list keeps them. A length of -1 is None. Returns -1
 * after an exception was set: an item is something else. */
int32_t tg_addresses(const python *py, void *list, int64_t start, int64_t count, const uint8_t **addresses,
                     int32_t *lengths)
{
    for (int64_t i = 0; i < count; i++) {
        void *one = py->get(list, start + i);
        char *bytes = NULL;
        ptrdiff_t length = -1;
        if (one == NULL || (one != py->none && py->read(one, &bytes, &length) != 0))
            return -1;
        addresses[i] = (const uint8_t *)bytes;
        lengths[i] = (int32_t)length;
    }
    return 0;
}
