/* See table.h. Rows and chunks; `batches.c` has what Python calls for a batch of keys. */
#include "table.h"

#include <stdlib.h>

enum {
    SLOTS_FIRST = 16,
    CHUNKS_FIRST = 16,
    HEAP_BYTES_FIRST = 1 << 9,
    HEAP_BYTES_FULL = 1 << 20, /* such a chunk gets no new rows, because it takes long to copy */
};

/* ---- layout ---- */

static int32_t width_of(int32_t kind)
{
    switch (kind) {
    case BOOLEAN:
    case TINYINT:
        return 1;
    case SMALLINT:
        return 2;
    case INT:
    case FLOAT:
    case DATE:
        return 4;
    case BIGINT:
    case DOUBLE:
    case TIMESTAMP:
    case TIMESTAMP_NTZ:
    case STRING:
    case BINARY:
        return 8;
    default:
        return 0;
    }
}

static bool read_parts(part *to, int32_t count, const int32_t *kinds, const uint8_t *nullable)
{
    if (count > FIELDS_MAX)
        return false;
    for (int32_t i = 0; i < count; i++) {
        to[i] = (part){.kind = kinds[i], .nullable = nullable[i] != 0, .width = width_of(kinds[i])};
        if (to[i].width == 0)
            return false;
    }
    return true;
}

/* NULL also for types that a table cannot have. */
layout *tg_layout_new(int32_t groups, const int32_t *keys, const uint8_t *nullable_keys, int32_t key_count,
                      const int32_t *values, const uint8_t *nullable_values, int32_t value_count)
{
    layout *made = malloc(sizeof(layout));
    if (made == NULL)
        return NULL;
    *made = (layout){.groups = groups, .key_count = key_count, .value_count = value_count, .chunk_bytes = sizeof(chunk)};
    if (key_count < 1 || !read_parts(made->keys, key_count, keys, nullable_keys) ||
        !read_parts(made->values, value_count, values, nullable_values)) {
        free(made);
        return NULL;
    }
    for (int32_t i = 0; i < value_count; i++) {
        part *one = made->values + i;
        one->known = made->chunk_bytes;
        one->values = one->known + ROWS / 8;
        made->chunk_bytes = one->values + (int64_t)ROWS * one->width;
    }
    return made;
}

void tg_layout_free(layout *of)
{
    free(of);
}

/* ---- chunks ---- */

static chunk *chunk_new(const layout *of)
{
    chunk *made = calloc(1, (size_t)of->chunk_bytes);
    if (made != NULL)
        made->holders = 1;
    return made;
}

void chunk_release(chunk *of)
{
    if (of != NULL && __atomic_sub_fetch(&of->holders, 1, __ATOMIC_ACQ_REL) == 0) {
        free(of->heap);
        free(of);
    }
}

static chunk *chunk_copy(const layout *of, const chunk *from)
{
    chunk *made = malloc((size_t)of->chunk_bytes);
    uint8_t *heap = malloc((size_t)(from->size == 0 ? 1 : from->size));
    if (made == NULL || heap == NULL) {
        free(made);
        free(heap);
        return NULL;
    }
    /* Not the number of holders, which others change. */
    memcpy((uint8_t *)made + sizeof(int64_t), (const uint8_t *)from + sizeof(int64_t),
           (size_t)of->chunk_bytes - sizeof(int64_t));
    made->holders = 1;
    made->heap = heap;
    if (from->used > 0)
        memcpy(heap, from->heap, (size_t)from->used);
    return made;
}

chunk *table_own(table *of, int64_t row)
{
    chunk **place = of->chunks + row / ROWS;
    if (__atomic_load_n(&(*place)->holders, __ATOMIC_ACQUIRE) == 1)
        return *place;
    chunk *copy = chunk_copy(of->of, *place);
    if (copy == NULL)
        return NULL;
    chunk_release(*place);
    *place = copy;
    return copy;
}

static void move_span(const chunk *from, uint8_t *heap, int64_t *used, span *text)
{
    if (text->length > 0)
        memcpy(heap + *used, from->heap + text->offset, text->length);
    text->offset = (uint32_t)*used;
    *used += text->length;
}

/* Ensures room for this many bytes at the end of the heap, from which unused ones are removed. */
static bool chunk_reserve(const layout *of, chunk *to, int64_t length)
{
    if (length <= to->size - to->used)
        return true;
    int64_t needed = to->used - to->unused + length, size = needed + needed / 2;
    if (needed > UINT32_MAX)
        return false;
    if (size < HEAP_BYTES_FIRST)
        size = HEAP_BYTES_FIRST;
    uint8_t *heap = malloc((size_t)size);
    if (heap == NULL)
        return false;
    int64_t used = 0;
    for (int32_t i = 0; i < ROWS; i++)
        move_span(to, heap, &used, to->keys + i);
    for (int32_t f = 0; f < of->value_count; f++)
        if (is_text(of->values[f].kind)) {
            span *texts = (span *)chunk_bits(to, of->values[f].values);
            for (int32_t i = 0; i < ROWS; i++)
                move_span(to, heap, &used, texts + i);
        }
    free(to->heap);
    to->heap = heap;
    to->size = size;
    to->used = used;
    to->unused = 0;
    return true;
}

bool chunk_set_text(const layout *of, chunk *to, span *text, const uint8_t *bytes, int64_t length)
{
    if (length > text->length) {
        if (!chunk_reserve(of, to, length))
            return false;
        to->unused += text->length;
        text->offset = (uint32_t)to->used;
        to->used += length;
    } else
        to->unused += text->length - length;
    text->length = (uint32_t)length;
    if (length > 0)
        memcpy(to->heap + text->offset, bytes, (size_t)length);
    return true;
}

/* ---- table ---- */

table *tg_table_new(const layout *of, uint64_t seed)
{
    table *made = calloc(1, sizeof(table));
    if (made != NULL) {
        made->of = of;
        made->seed = seed;
    }
    return made;
}

/* Removes all keys. */
void tg_table_clear(table *of)
{
    for (int64_t i = 0; i < of->chunk_count; i++)
        chunk_release(of->chunks[i]);
    for (int32_t i = 0; i < SEGMENTS; i++)
        free(of->segments[i].slots);
    free(of->chunks);
    free(of->free_rows);
    *of = (table){.of = of->of, .seed = of->seed, .version = of->version + 1};
}

void tg_table_free(table *of)
{
    tg_table_clear(of);
    free(of);
}

int64_t tg_table_count(const table *of)
{
    return of->count;
}

static segment *segment_of(const table *of, uint64_t hash)
{
    return (segment *)of->segments + (hash >> 56);
}

static bool has_key(const table *in, int64_t row, const uint8_t *key, int64_t length)
{
    int64_t there;
    const uint8_t *other = chunk_key(in->chunks[row / ROWS], (int32_t)(row % ROWS), &there);
    return there == length && memcmp(other, key, (size_t)length) == 0;
}

int64_t table_find(const table *in, const uint8_t *key, int64_t length, uint64_t hash)
{
    const segment *part = segment_of(in, hash);
    if (part->slots == NULL)
        return ABSENT;
    for (uint32_t at = (uint32_t)hash & part->mask;; at = (at + 1) & part->mask) {
        uint64_t slot = part->slots[at];
        if (slot == 0)
            return ABSENT;
        int64_t row = (int64_t)(slot & UINT32_MAX) - 1;
        if ((uint32_t)(slot >> 32) == (uint32_t)hash && has_key(in, row, key, length))
            return row;
    }
}

void search_slot(const table *in, uint64_t hash)
{
    const segment *part = segment_of(in, hash);
    if (part->slots != NULL)
        __builtin_prefetch(part->slots + ((uint32_t)hash & part->mask));
}

int64_t search_row(const table *in, uint64_t hash)
{
    const segment *part = segment_of(in, hash);
    if (part->slots == NULL)
        return ABSENT;
    for (uint32_t at = (uint32_t)hash & part->mask;; at = (at + 1) & part->mask) {
        uint64_t slot = part->slots[at];
        if (slot == 0)
            return ABSENT;
        if ((uint32_t)(slot >> 32) != (uint32_t)hash)
            continue;
        int64_t row = (int64_t)(slot & UINT32_MAX) - 1;
        __builtin_prefetch(in->chunks[row / ROWS]);
        __builtin_prefetch(in->chunks[row / ROWS]->keys + row % ROWS);
        return row;
    }
}

void search_key(const table *in, int64_t row)
{
    int64_t length;
    if (row != ABSENT)
        __builtin_prefetch(chunk_key(in->chunks[row / ROWS], (int32_t)(row % ROWS), &length));
}

int64_t search_end(const table *in, int64_t row, const uint8_t *key, int64_t length, uint64_t hash)
{
    return row == ABSENT || has_key(in, row, key, length) ? row : table_find(in, key, length, hash);
}

static void segment_put(segment *to, uint64_t slot)
{
    uint32_t at = (uint32_t)(slot >> 32) & to->mask;
    while (to->slots[at] != 0)
        at = (at + 1) & to->mask;
    to->slots[at] = slot;
}

static bool segment_resize(segment *of, int64_t slots)
{
    segment grown = {calloc((size_t)slots, sizeof(uint64_t)), (uint32_t)(slots - 1), of->used};
    if (grown.slots == NULL)
        return false;
    for (int64_t i = 0; of->slots != NULL && i <= of->mask; i++)
        if (of->slots[i] != 0)
            segment_put(&grown, of->slots[i]);
    free(of->slots);
    *of = grown;
    return true;
}

/* Room for one more slot, of which a quarter stays free. */
static bool segment_reserve(segment *of)
{
    if (of->slots == NULL)
        return segment_resize(of, SLOTS_FIRST);
    int64_t slots = (int64_t)of->mask + 1;
    return of->used + 1 <= slots - slots / 4 || segment_resize(of, slots * 2);
}

/* Ensures room for this many more keys, before many are added. */
int32_t tg_table_reserve(table *of, int64_t keys)
{
    int64_t each = (of->count + keys) / SEGMENTS, slots = SLOTS_FIRST;
    while (slots - slots / 4 < each + each / 8)
        slots *= 2;
    for (int32_t i = 0; i < SEGMENTS; i++)
        if (of->segments[i].slots == NULL || slots > (int64_t)of->segments[i].mask + 1)
            if (!segment_resize(of->segments + i, slots))
                return 0;
    return 1;
}

/* Slots behind the one that becomes free move up, so a search still ends at a free one. */
static void segment_remove(segment *from, int64_t row, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & from->mask;
    while ((int64_t)(from->slots[at] & UINT32_MAX) - 1 != row)
        at = (at + 1) & from->mask;
    for (uint32_t next = (at + 1) & from->mask; from->slots[next] != 0; next = (next + 1) & from->mask) {
        uint32_t home = (uint32_t)(from->slots[next] >> 32) & from->mask;
        if (((next - home) & from->mask) >= ((next - at) & from->mask)) {
            from->slots[at] = from->slots[next];
            at = next;
        }
    }
    from->slots[at] = 0;
    from->used--;
}

static bool chunks_add(table *to)
{
    if (to->chunk_count == to->chunk_capacity) {
        int64_t capacity = to->chunk_capacity == 0 ? CHUNKS_FIRST : to->chunk_capacity * 2;
        chunk **grown = realloc(to->chunks, (size_t)capacity * sizeof(chunk *));
        if (grown == NULL)
            return false;
        to->chunks = grown;
        to->chunk_capacity = capacity;
    }
    if ((to->chunk_count + 1) * ROWS >= UINT32_MAX)
        return false;
    chunk *made = chunk_new(to->of);
    if (made == NULL)
        return false;
    to->next_row = to->chunk_count * ROWS;
    to->chunks[to->chunk_count++] = made;
    return true;
}

/* A row that no key has; it is taken by `table_add`. */
static int64_t row_free(table *of)
{
    if (of->free_count > 0)
        return of->free_rows[of->free_count - 1];
    bool full = of->next_row == of->chunk_count * ROWS || of->chunks[of->next_row / ROWS]->used > HEAP_BYTES_FULL;
    return full && !chunks_add(of) ? ABSENT : of->next_row;
}

int64_t table_add(table *to, const uint8_t *key, int64_t length, uint64_t hash, uint16_t group)
{
    segment *part = segment_of(to, hash);
    int64_t row = group < to->of->groups ? row_free(to) : ABSENT;
    if (row == ABSENT || !segment_reserve(part))
        return ABSENT;
    int32_t at = (int32_t)(row % ROWS);
    chunk *of = table_own(to, row);
    if (of == NULL || !chunk_set_text(to->of, of, of->keys + at, key, length))
        return ABSENT;
    if (to->free_count > 0)
        to->free_count--;
    else
        to->next_row++;
    bit_set(of->live, at);
    of->groups[at] = group;
    segment_put(part, (uint64_t)(uint32_t)hash << 32 | (uint64_t)(row + 1));
    part->used++;
    to->count++;
    to->version++;
    return row;
}

static void clear_text(chunk *of, span *text)
{
    of->unused += text->length;
    text->length = 0;
}

bool table_remove(table *from, int64_t row, uint64_t hash)
{
    if (from->free_count == from->free_capacity) {
        int64_t capacity = from->free_capacity == 0 ? ROWS : from->free_capacity * 2;
        uint32_t *grown = realloc(from->free_rows, (size_t)capacity * sizeof(uint32_t));
        if (grown == NULL)
            return false;
        from->free_rows = grown;
        from->free_capacity = capacity;
    }
    chunk *of = table_own(from, row);
    if (of == NULL)
        return false;
    int32_t at = (int32_t)(row % ROWS);
    segment_remove(segment_of(from, hash), row, hash);
    clear_text(of, of->keys + at);
    for (int32_t f = 0; f < from->of->value_count; f++) {
        const part *field = from->of->values + f;
        bit_clear(chunk_bits(of, field->known), at);
        if (is_text(field->kind))
            clear_text(of, (span *)chunk_bits(of, field->values) + at);
    }
    bit_clear(of->live, at);
    from->free_rows[from->free_count++] = (uint32_t)row;
    from->count--;
    from->version++;
    return true;
}
