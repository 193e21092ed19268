/* Columns in Arrow's layout, and the arena of a batch that holds them.
 *
 * Everything that belongs to one batch is in one arena, which is freed with the last of its arrays, by any owner and on
 * whatever thread. An arena is filled by one thread; then its arrays may go anywhere.
 *
 * Functions that take memory return NULL or false where there is none.
 */
#ifndef TIDEGATE_ARROW_H
#define TIDEGATE_ARROW_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Of Arrow's C data interface. */
struct ArrowSchema {
    const char *format;
    const char *name;
    const char *metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

/* A string or some bytes: short ones are in the view, of others the place in a buffer. */
typedef struct {
    int32_t length;
    union {
        uint8_t bytes[12];
        struct {
            uint8_t prefix[4];
            int32_t buffer;
            int32_t offset;
        } place;
    };
} view;

enum { VIEW_INLINE_BYTES = 12 };

#pragma GCC visibility push(hidden)

typedef struct arena arena;

/* An arena with one owner and room for this many bytes before it grows. */
arena *arena_new(int64_t bytes);

/* Uninitialised memory, aligned for every type; it lives as long as the arena. */
void *arena_take(arena *owner, int64_t bytes);

void arena_release(arena *owner);

/* Buffers that views point into. Each is shorter than 2 GiB, as offsets in views are; so there may be several. */
typedef struct {
    arena *owner;
    uint8_t *next;
    uint8_t *end;
    const void **buffers;
    int64_t *sizes;
    int32_t count;
    int32_t capacity;
    int64_t size;
    int64_t limit;
} texts;

enum { TEXT_BYTES_MAX = INT32_MAX };

/* `first`: of the first buffer, the following ones are larger. `limit`: of any, at most TEXT_BYTES_MAX. */
void texts_begin(texts *these, arena *owner, int64_t first, int64_t limit);

/* Ensures room for `length` bytes at `next`; `length` is at most the limit. */
bool texts_grow(texts *these, int64_t length);

static inline bool texts_reserve(texts *these, int64_t length)
{
    return length <= these->end - these->next || texts_grow(these, length);
}

static inline void view_inline(view *to, const uint8_t *from, int32_t length)
{
    *to = (view){.length = length};
    for (int32_t i = 0; i < length; i++)
        to->bytes[i] = from[i];
}

/* The same where twelve bytes may be read: without a branch that depends on the length, which cannot be predicted. */
static inline void view_inline_from(view *to, const uint8_t *from, int32_t length)
{
    static const uint8_t kept[2 * VIEW_INLINE_BYTES] = {255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
    const uint8_t *mask = kept + VIEW_INLINE_BYTES - length;
    uint64_t first, first_mask;
    uint32_t last, last_mask;
    memcpy(&first, from, 8);
    memcpy(&first_mask, mask, 8);
    memcpy(&last, from + 8, 4);
    memcpy(&last_mask, mask + 8, 4);
    first &= first_mask;
    last &= last_mask;
    to->length = length;
    memcpy(to->bytes, &first, 8);
    memcpy(to->bytes + 8, &last, 4);
}

/* The view of what was written at `next`, which becomes part of the buffer unless it fits into the view. */
static inline void texts_commit(texts *these, view *to, int32_t length)
{
    if (length <= VIEW_INLINE_BYTES) {
        view_inline(to, these->next, length);
        return;
    }
    to->length = length;
    memcpy(to->place.prefix, these->next, 4);
    to->place.buffer = these->count - 1;
    to->place.offset = (int32_t)(these->next - (const uint8_t *)these->buffers[these->count - 1]);
    these->next += length;
}

/* The bytes of a view that has a place. */
static inline const uint8_t *texts_of(const texts *these, const view *of)
{
    return (const uint8_t *)these->buffers[of->place.buffer] + of->place.offset;
}

/* The view of a copy. What is before `end` may be read. */
static inline bool texts_copy(texts *these, view *to, const uint8_t *from, int32_t length, const uint8_t *end)
{
    if (length <= VIEW_INLINE_BYTES) {
        if (end - from >= VIEW_INLINE_BYTES)
            view_inline_from(to, from, length);
        else
            view_inline(to, from, length);
        return true;
    }
    if (!texts_reserve(these, length))
        return false;
    memcpy(these->next, from, (size_t)length);
    texts_commit(these, to, length);
    return true;
}

/* How an array or a schema is filled in. Everything they point to is in the arena; each of them is one owner of it. */
bool arrow_values(struct ArrowArray *to, arena *owner, int64_t length, const uint8_t *known, int64_t missing,
                  const void *values);
bool arrow_views(struct ArrowArray *to, arena *owner, int64_t length, const uint8_t *known, int64_t missing,
                 const view *views, texts *these);
bool arrow_parent(struct ArrowArray *to, arena *owner, int64_t length, const uint8_t *known, int64_t missing,
                  const int64_t *offsets, struct ArrowArray *children, int64_t count);
bool arrow_schema(struct ArrowSchema *to, arena *owner, const char *format, const char *name,
                  struct ArrowSchema *children, int64_t count);

/* Ends the filling of the results of one call: all of them, or none if memory was missing. Returns `done`. */
int32_t arrow_finish(arena *owner, bool done, struct ArrowArray *array, struct ArrowSchema *schema);

int64_t bits_bytes(int64_t count);

/* A bitmap of this many ones: no value is NULL. */
uint8_t *bits_new(arena *owner, int64_t count);
int64_t bits_count_zeros(const uint8_t *bits, int64_t count);

static inline void bit_clear(uint8_t *bits, int64_t place)
{
    bits[place >> 3] &= (uint8_t)~(1u << (place & 7));
}

static inline void bit_set(uint8_t *bits, int64_t place)
{
    bits[place >> 3] |= (uint8_t)(1u << (place & 7));
}

#pragma GCC visibility pop

#endif
