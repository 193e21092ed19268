/* See arrow.h. */
#include "arrow.h"

#include <stdlib.h>

enum { ALIGNMENT = 16, BLOCK_BYTES = 1 << 13, NULLABLE = 2, TEXTS_FIRST = 8 };

typedef struct block {
    struct block *next;
    int64_t size;
    int64_t used;
    int64_t unused; /* keeps what follows aligned */
} block;

struct arena {
    int64_t holders;
    block *blocks; /* room is looked for in the first one */
};

static block *block_new(int64_t size)
{
    block *made = malloc(sizeof(block) + (size_t)size);
    if (made != NULL)
        *made = (block){NULL, size, 0, 0};
    return made;
}

static void *block_take(block *from, int64_t size)
{
    uint8_t *place = (uint8_t *)(from + 1) + from->used;
    from->used += size;
    return place;
}

arena *arena_new(int64_t bytes)
{
    arena *made = malloc(sizeof(arena));
    if (made == NULL)
        return NULL;
    *made = (arena){1, block_new(bytes < BLOCK_BYTES ? BLOCK_BYTES : bytes)};
    if (made->blocks != NULL)
        return made;
    free(made);
    return NULL;
}

void *arena_take(arena *owner, int64_t bytes)
{
    if (bytes < 0 || bytes > INT64_MAX / 2)
        return NULL;
    int64_t size = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block *first = owner->blocks;
    if (size <= first->size - first->used)
        return block_take(first, size);
    bool large = size > BLOCK_BYTES / 2;
    block *made = block_new(large ? size : BLOCK_BYTES);
    if (made == NULL)
        return NULL;
    if (large) { /* there is still room in the first one */
        made->next = first->next;
        first->next = made;
    } else {
        made->next = first;
        owner->blocks = made;
    }
    return block_take(made, size);
}

static void arena_hold(arena *owner)
{
    __atomic_add_fetch(&owner->holders, 1, __ATOMIC_RELAXED);
}

static void arena_free(arena *owner)
{
    for (block *each = owner->blocks; each != NULL;) {
        block *next = each->next;
        free(each);
        each = next;
    }
    free(owner);
}

void arena_release(arena *owner)
{
    if (__atomic_sub_fetch(&owner->holders, 1, __ATOMIC_ACQ_REL) == 0)
        arena_free(owner);
}

void texts_begin(texts *these, arena *owner, int64_t first, int64_t limit)
{
    *these = (texts){.owner = owner, .size = first < limit ? first : limit, .limit = limit};
}

static bool texts_list_grow(texts *these)
{
    int32_t capacity = these->capacity == 0 ? TEXTS_FIRST : these->capacity * 2;
    const void **buffers = arena_take(these->owner, capacity * (int64_t)sizeof(void *));
    int64_t *sizes = arena_take(these->owner, capacity * (int64_t)sizeof(int64_t));
    if (buffers == NULL || sizes == NULL)
        return false;
    if (these->count > 0) {
        memcpy(buffers, these->buffers, (size_t)these->count * sizeof(void *));
        memcpy(sizes, these->sizes, (size_t)these->count * sizeof(int64_t));
    }
    these->buffers = buffers;
    these->sizes = sizes;
    these->capacity = capacity;
    return true;
}

static void texts_close(texts *these)
{
    if (these->count > 0)
        these->sizes[these->count - 1] = these->next - (const uint8_t *)these->buffers[these->count - 1];
}

bool texts_grow(texts *these, int64_t length)
{
    if (length > these->limit || (these->count == these->capacity && !texts_list_grow(these)))
        return false;
    int64_t size = length > these->size ? length : these->size;
    uint8_t *made = arena_take(these->owner, size);
    if (made == NULL)
        return false;
    texts_close(these);
    these->buffers[these->count] = made;
    these->count++;
    these->next = made;
    these->end = made + size;
    these->size = size > these->limit / 2 ? these->limit : size * 2;
    return true;
}

static void release_array(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++)
        if (array->children[i]->release != NULL) /* else it has been moved to another owner */
            array->children[i]->release(array->children[i]);
    array->release = NULL;
    arena_release(array->private_data);
}

static void release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++)
        if (schema->children[i]->release != NULL)
            schema->children[i]->release(schema->children[i]);
    schema->release = NULL;
    arena_release(schema->private_data);
}

static bool fill_array(struct ArrowArray *to, arena *owner, int64_t length, const uint8_t *known, int64_t missing,
                       int64_t buffers)
{
    const void **list = arena_take(owner, buffers * (int64_t)sizeof(void *));
    if (list == NULL)
        return false;
    list[0] = missing == 0 ? NULL : known;
    *to = (struct ArrowArray){.length = length,
                              .null_count = missing,
                              .n_buffers = buffers,
                              .buffers = list,
                              .release = release_array,
                              .private_data = owner};
    arena_hold(owner);
    return true;
}

bool arrow_values(struct ArrowArray *to, arena *owner, int64_t length, const uint8_t *known, int64_t missing,
                  const void *values)
{
    if (!fill_array(to, owner, length, known, missing, 2))
        return false;
    to->buffers[1] = values;
    return true;
}

bool arrow_views(struct ArrowArray *to, arena *owner, int64_t length, const uint8_t *known, int64_t missing,
                 const view *views, texts *these)
{
    /* The list of sizes is a buffer as well, and is required. */
    if ((these->capacity == 0 && !texts_list_grow(these)) ||
        !fill_array(to, owner, length, known, missing, these->count + 3))
        return false;
    texts_close(these);
    to->buffers[1] = views;
    for (int32_t i = 0; i < these->count; i++)
        to->buffers[2 + i] = these->buffers[i];
    to->buffers[2 + these->count] = these->sizes;
    return true;
}

bool arrow_parent(struct ArrowArray *to, arena *owner, int64_t length, const uint8_t *known, int64_t missing,
                  const int64_t *offsets, struct ArrowArray *children, int64_t count)
{
    struct ArrowArray **list = arena_take(owner, count * (int64_t)sizeof(void *));
    if (list == NULL || !fill_array(to, owner, length, known, missing, offsets == NULL ? 1 : 2))
        return false;
    for (int64_t i = 0; i < count; i++)
        list[i] = children + i;
    if (offsets != NULL)
        to->buffers[1] = offsets;
    to->children = list;
    to->n_children = count;
    return true;
}

bool arrow_schema(struct ArrowSchema *to, arena *owner, const char *format, const char *name,
                  struct ArrowSchema *children, int64_t count)
{
    struct ArrowSchema **list = arena_take(owner, count * (int64_t)sizeof(void *));
    int64_t format_bytes = (int64_t)strlen(format) + 1, name_bytes = (int64_t)strlen(name) + 1;
    char *texts = arena_take(owner, format_bytes + name_bytes);
    if (list == NULL || texts == NULL)
        return false;
    for (int64_t i = 0; i < count; i++)
        list[i] = children + i;
    *to = (struct ArrowSchema){.format = memcpy(texts, format, (size_t)format_bytes),
                               .name = memcpy(texts + format_bytes, name, (size_t)name_bytes),
                               .flags = NULLABLE,
                               .n_children = count,
                               .children = list,
                               .release = release_schema,
                               .private_data = owner};
    arena_hold(owner);
    return true;
}

int64_t bits_bytes(int64_t count)
{
    return (count + 63) / 64 * 8;
}

uint8_t *bits_new(arena *owner, int64_t count)
{
    uint8_t *bits = arena_take(owner, bits_bytes(count));
    if (bits != NULL)
        memset(bits, 0xff, (size_t)bits_bytes(count));
    return bits;
}

int64_t bits_count_zeros(const uint8_t *bits, int64_t count)
{
    int64_t ones = 0;
    for (int64_t i = 0; i < count / 64; i++) {
        uint64_t word;
        memcpy(&word, bits + 8 * i, 8);
        ones += __builtin_popcountll(word);
    }
    for (int64_t i = count / 64 * 64; i < count; i++)
        ones += bits[i >> 3] >> (i & 7) & 1;
    return count - ones;
}

int32_t arrow_finish(arena *owner, bool done, struct ArrowArray *array, struct ArrowSchema *schema)
{
    if (done) {
        arena_release(owner);
        return 1;
    }
    /* The result was not returned, so it is released here. */
    array->release = NULL;
    schema->release = NULL;
    arena_free(owner);
    return 0;
}

static bool copy_views(arena *owner, const uint8_t *const *values, const int32_t *lengths, int64_t count,
                       int64_t long_bytes, int64_t limit, struct ArrowArray *array)
{
    texts these;
    texts_begin(&these, owner, long_bytes, limit);
    view *views = arena_take(owner, count * (int64_t)sizeof(view));
    uint8_t *known = bits_new(owner, count);
    if (views == NULL || known == NULL)
        return false;
    int64_t missing = 0;
    for (int64_t i = 0; i < count; i++) {
        if (lengths[i] < 0) {
            views[i] = (view){.length = 0};
            bit_clear(known, i);
            missing++;
        } else if (!texts_copy(&these, views + i, values[i], lengths[i], values[i] + lengths[i]))
            return false;
    }
    return arrow_views(array, owner, count, known, missing, views, &these);
}

/* Copies `count` values into a column; a length of -1 is NULL. Returns 0 if memory is missing. */
int32_t tg_view_column(const uint8_t *const *values, const int32_t *lengths, int64_t count, int64_t limit,
                       const char *name, struct ArrowArray *array, struct ArrowSchema *schema)
{
    int64_t long_bytes = 0;
    for (int64_t i = 0; i < count; i++)
        if (lengths[i] > VIEW_INLINE_BYTES)
            long_bytes += lengths[i];
    int64_t in_block = long_bytes < limit ? long_bytes : 0;
    arena *owner = arena_new(count * (int64_t)sizeof(view) + bits_bytes(count) + in_block + 4096);
    if (owner == NULL)
        return 0;
    bool done = copy_views(owner, values, lengths, count, long_bytes, limit, array) &&
                arrow_schema(schema, owner, "vz", name, NULL, 0);
    return arrow_finish(owner, done, array, schema);
}

static bool copy_values(arena *owner, const void *values, int64_t count, int64_t width, const uint8_t *known,
                        struct ArrowArray *array)
{
    void *copy = arena_take(owner, count * width);
    uint8_t *bits = known == NULL ? NULL : bits_new(owner, count);
    if (copy == NULL || (known != NULL && bits == NULL))
        return false;
    if (count > 0)
        memcpy(copy, values, (size_t)(count * width));
    int64_t missing = 0;
    for (int64_t i = 0; known != NULL && i < count; i++)
        if (!known[i]) {
            bit_clear(bits, i);
            missing++;
        }
    return arrow_values(array, owner, count, bits, missing, copy);
}

/* A copy of an array of numbers as a column; `known` has a byte for each, or is NULL. As tg_view_column. */
int32_t tg_fixed_column(const void *values, int64_t count, int64_t width, const uint8_t *known, const char *format,
                        const char *name, struct ArrowArray *array, struct ArrowSchema *schema)
{
    arena *owner = arena_new(count * width + bits_bytes(count) + 4096);
    if (owner == NULL)
        return 0;
    bool done = copy_values(owner, values, count, width, known, array) &&
                arrow_schema(schema, owner, format, name, NULL, 0);
    return arrow_finish(owner, done, array, schema);
}
