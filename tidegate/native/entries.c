/* The entries of a table as in a state file (`state/snapshot.py`): MessagePack arrays of a key and a value. */
#include "msgpack.h"
#include "table.h"

#include <stdlib.h>

enum {
    PIECE_HEAD_BYTES = 5, /* the head of the array, whose length is known at the end */
    PIECE_BYTES_FIRST = 1 << 10,
    ENTRY_HEAD = FIXARRAY | 2,
};

/* ---- writing ---- */

/* The array of a key group, or of a part of it. */
typedef struct piece {
    struct piece *next;
    uint8_t *bytes;
    int64_t used;
    int64_t size;
    int64_t entries;
} piece;

typedef struct {
    int64_t piece_bytes; /* with which a piece ends */
    int64_t count;       /* of pieces */
    int32_t groups;
    struct {
        piece *first;
        piece *last;
    } of[]; /* by key group */
} entries;

void tg_entries_free(entries *these)
{
    for (int32_t group = 0; group < these->groups; group++)
        for (piece *each = these->of[group].first; each != NULL;) {
            piece *next = each->next;
            free(each->bytes);
            free(each);
            each = next;
        }
    free(these);
}

static piece *piece_add(entries *to, int32_t group)
{
    piece *made = malloc(sizeof(piece));
    if (made == NULL)
        return NULL;
    *made = (piece){NULL, malloc(PIECE_BYTES_FIRST), PIECE_HEAD_BYTES, PIECE_BYTES_FIRST, 0};
    if (made->bytes == NULL) {
        free(made);
        return NULL;
    }
    if (to->of[group].last == NULL)
        to->of[group].first = made;
    else
        to->of[group].last->next = made;
    to->of[group].last = made;
    to->count++;
    return made;
}

/* Ensures room for an entry of at most this many bytes. */
static piece *entry_room(entries *to, int32_t group, int64_t bytes)
{
    piece *last = to->of[group].last;
    if ((last == NULL || last->used >= to->piece_bytes) && (last = piece_add(to, group)) == NULL)
        return NULL;
    if (bytes <= last->size - last->used)
        return last;
    int64_t size = last->size * 2 > last->used + bytes ? last->size * 2 : last->used + bytes;
    uint8_t *grown = realloc(last->bytes, (size_t)size);
    if (grown == NULL)
        return NULL;
    last->bytes = grown;
    last->size = size;
    return last;
}

static uint8_t *write_value(uint8_t *to, const part *of, const chunk *from, int64_t at)
{
    const uint8_t *value = (const uint8_t *)from + of->values + at * of->width;
    if (!bit_get((const uint8_t *)from + of->known, at)) {
        *to = NIL;
        return to + 1;
    }
    switch (of->kind) {
    case BOOLEAN:
        *to = *value ? YES : NO;
        return to + 1;
    case TINYINT:
        return write_integer(to, *(const int8_t *)value);
    case SMALLINT:
        return write_integer(to, *(const int16_t *)value);
    case INT:
    case DATE:
        return write_integer(to, *(const int32_t *)value);
    case FLOAT:
        return write_double(to, *(const float *)value);
    case DOUBLE:
        return write_double(to, *(const double *)value);
    case STRING:
    case BINARY: {
        const span *text = (const span *)value;
        to = of->kind == STRING ? write_str_head(to, text->length) : write_bin_head(to, text->length);
        memcpy(to, from->heap + text->offset, text->length);
        return to + text->length;
    }
    default:
        return write_integer(to, *(const int64_t *)value);
    }
}

static int64_t entry_bytes(const layout *of, const chunk *from, int32_t at)
{
    int64_t bytes = 1 + from->keys[at].length + HEAD_BYTES + (int64_t)of->value_count * VALUE_BYTES;
    for (int32_t f = 0; f < of->value_count; f++)
        if (is_text(of->values[f].kind))
            bytes += ((const span *)((const uint8_t *)from + of->values[f].values))[at].length;
    return bytes;
}

static bool write_entry(entries *to, const layout *of, const chunk *from, int32_t at)
{
    piece *piece = entry_room(to, from->groups[at], entry_bytes(of, from, at));
    if (piece == NULL)
        return false;
    int64_t length;
    const uint8_t *key = chunk_key(from, at, &length);
    uint8_t *next = piece->bytes + piece->used;
    *next++ = ENTRY_HEAD;
    memcpy(next, key, (size_t)length);
    next = write_array_head(next + length, (uint32_t)of->value_count);
    for (int32_t f = 0; f < of->value_count; f++)
        next = write_value(next, of->values + f, from, at);
    piece->used = next - piece->bytes;
    piece->entries++;
    return true;
}

static bool write_all(entries *to, moment *from)
{
    for (int64_t i = 0; i < from->count; i++) {
        const chunk *one = from->chunks[i];
        for (int32_t at = 0; at < ROWS; at++)
            if (bit_get(one->live, at) && !write_entry(to, from->of, one, at))
                return false;
        chunk_release(from->chunks[i]);
        from->chunks[i] = NULL;
    }
    return true;
}

static bool write_tombstone(entries *to, const uint8_t *key, int64_t length, uint16_t group)
{
    piece *piece = entry_room(to, group, length + 2);
    if (piece == NULL)
        return false;
    uint8_t *next = piece->bytes + piece->used;
    *next = ENTRY_HEAD;
    memcpy(next + 1, key, (size_t)length);
    next[1 + length] = NIL;
    piece->used += length + 2;
    piece->entries++;
    return true;
}

/* A key that was removed and came back is among the rows, because that happened later. It gets no tombstone. */
static bool write_changes(entries *to, const moment *from, const changes *of, uint64_t seed, uint8_t *back)
{
    for (int64_t i = 0; i < of->count; i++) {
        const chunk *one = from->chunks[of->rows[i] / ROWS];
        int32_t at = of->rows[i] % ROWS;
        if (!bit_get(one->live, at))
            continue;
        if (of->removed.count > 0) {
            int64_t length;
            const uint8_t *key = chunk_key(one, at, &length);
            int64_t number = key_set_find(&of->removed, key, length, hash_bytes(seed, key, length));
            if (number >= 0)
                back[number] = 1;
        }
        if (!write_entry(to, from->of, one, at))
            return false;
    }
    for (int64_t i = 0; i < of->removed.count; i++) {
        int64_t length;
        const uint8_t *key = key_set_key(&of->removed, i, &length);
        if (!back[i] && !write_tombstone(to, key, length, of->groups[i]))
            return false;
    }
    return true;
}

/* Writes all entries of a moment, and lets go its chunks; or those of `rows`, with tombstones. NULL where memory is
 * missing. `seed` is that of the table.
 */
entries *tg_entries_new(moment *from, const changes *rows, uint64_t seed, int64_t piece_bytes)
{
    int32_t groups = from->of->groups;
    entries *made = calloc(1, sizeof(entries) + (size_t)groups * sizeof(made->of[0]));
    uint8_t *back = calloc(rows == NULL ? 1 : (size_t)rows->removed.count + 1, 1);
    if (made != NULL) {
        made->piece_bytes = piece_bytes;
        made->groups = groups;
    }
    bool done = made != NULL && back != NULL &&
                (rows == NULL ? write_all(made, from) : write_changes(made, from, rows, seed, back));
    free(back);
    if (done)
        return made;
    if (made != NULL)
        tg_entries_free(made);
    return NULL;
}

int64_t tg_entries_count(const entries *these)
{
    return these->count;
}

/* The pieces by key group, each as a MessagePack array. */
void tg_entries_list(const entries *these, const uint8_t **bytes, int64_t *lengths, int64_t *counts, int32_t *groups)
{
    int64_t at = 0;
    for (int32_t group = 0; group < these->groups; group++)
        for (piece *each = these->of[group].first; each != NULL; each = each->next) {
            write_number(each->bytes, ARRAY32, (uint64_t)each->entries, 4);
            bytes[at] = each->bytes;
            lengths[at] = each->used;
            counts[at] = each->entries;
            groups[at++] = group;
        }
}

/* ---- reading ---- */

enum { NO_MEMORY, TAKEN, LEFT_OVER };
enum { TOGETHER = 16 }; /* entries whose keys are searched at a time */

static bool fits(int32_t kind, int64_t value)
{
    switch (kind) {
    case TINYINT:
        return value == (int8_t)value;
    case SMALLINT:
        return value == (int16_t)value;
    case INT:
    case DATE:
        return value == (int32_t)value;
    default:
        return true;
    }
}

/* Skips a part of a key that is written exactly as `batches.c` writes it. */
static const uint8_t *check_key_part(const part *of, const uint8_t *at, const uint8_t *end)
{
    uint8_t written[VALUE_BYTES];
    if (at == end)
        return NULL;
    if (*at == NIL)
        return of->nullable ? at + 1 : NULL;
    if (of->kind == BOOLEAN)
        return *at == NO || *at == YES ? at + 1 : NULL;
    if (!is_text(of->kind)) {
        int64_t value;
        const uint8_t *next = read_integer_of(at, end, &value);
        return next != NULL && fits(of->kind, value) && write_integer(written, value) - written == next - at ? next : NULL;
    }
    int64_t length;
    const uint8_t *text = of->kind == STRING ? read_str(at, end, &length) : read_bin(at, end, &length);
    if (text == NULL || (of->kind == STRING && !is_utf8(text, text + length)))
        return NULL;
    uint8_t *head = of->kind == STRING ? write_str_head(written, (uint32_t)length) : write_bin_head(written, (uint32_t)length);
    return head - written == text - at ? text + length : NULL;
}

static const uint8_t *check_key(const layout *of, const uint8_t *at, const uint8_t *end)
{
    uint8_t head[VALUE_BYTES];
    int64_t length = write_array_head(head, (uint32_t)of->key_count) - head;
    if (end - at < length || memcmp(at, head, (size_t)length) != 0)
        return NULL;
    at += length;
    for (int32_t k = 0; at != NULL && k < of->key_count; k++)
        at = check_key_part(of->keys + k, at, end);
    return at;
}

static const uint8_t *read_floating(const part *of, uint8_t *value, const uint8_t *at, const uint8_t *end)
{
    double found;
    if (*at != FLOAT64)
        return NULL;
    at = read_number_of(at, end, &found);
    if (at == NULL)
        return NULL;
    float narrow = (float)found;
    if (of->kind == DOUBLE)
        memcpy(value, &found, 8);
    else if ((double)narrow == found || found != found)
        memcpy(value, &narrow, 4);
    else
        return NULL;
    return at;
}

static const uint8_t *read_whole(const part *of, uint8_t *value, const uint8_t *at, const uint8_t *end)
{
    int64_t found;
    at = read_integer_of(at, end, &found);
    if (at == NULL || !fits(of->kind, found))
        return NULL;
    int8_t one = (int8_t)found;
    int16_t two = (int16_t)found;
    int32_t four = (int32_t)found;
    memcpy(value, of->width == 1 ? (void *)&one : of->width == 2 ? (void *)&two : of->width == 4 ? (void *)&four : &found,
           (size_t)of->width);
    return at;
}

/* Sets a field that is not a text. NULL for what is left over. */
static const uint8_t *read_plain(const part *of, chunk *to, int64_t row, const uint8_t *at, const uint8_t *end)
{
    uint8_t *value = chunk_bits(to, of->values) + row * of->width;
    switch (of->kind) {
    case BOOLEAN:
        *value = *at == YES;
        return *at == NO || *at == YES ? at + 1 : NULL;
    case FLOAT:
    case DOUBLE:
        return read_floating(of, value, at, end);
    default:
        return read_whole(of, value, at, end);
    }
}

typedef struct {
    table *into;
    uint16_t group;
    bool out_of_memory;
} restoring;

static const uint8_t *read_text(restoring *by, const part *of, chunk *to, int64_t row, const uint8_t *at,
                                const uint8_t *end)
{
    int64_t length;
    at = of->kind == STRING ? read_str(at, end, &length) : read_bin(at, end, &length);
    if (at == NULL || (of->kind == STRING && !is_utf8(at, at + length)))
        return NULL;
    span *text = (span *)chunk_bits(to, of->values) + row;
    if (chunk_set_text(by->into->of, to, text, at, length))
        return at + length;
    by->out_of_memory = true;
    return NULL;
}

/* Sets the fields of a row. */
static const uint8_t *read_value(restoring *by, chunk *to, int64_t row, const uint8_t *at, const uint8_t *end)
{
    const layout *of = by->into->of;
    int64_t count;
    at = read_count(at, end, FIXARRAY, ARRAY16, &count);
    if (at == NULL || count != of->value_count)
        return NULL;
    for (int32_t f = 0; f < of->value_count; f++) {
        const part *field = of->values + f;
        if (at == NULL || at == end)
            return NULL;
        if (*at == NIL) {
            if (!field->nullable)
                return NULL;
            bit_clear(chunk_bits(to, field->known), row);
            if (is_text(field->kind) && !chunk_set_text(of, to, (span *)chunk_bits(to, field->values) + row, NULL, 0))
                return NULL;
            at++;
            continue;
        }
        bit_set(chunk_bits(to, field->known), row);
        at = is_text(field->kind) ? read_text(by, field, to, row, at, end) : read_plain(field, to, row, at, end);
    }
    return at;
}

/* An entry whose key was checked. */
typedef struct {
    const uint8_t *key;
    int64_t length;
    uint64_t hash;
    const uint8_t *value;
    const uint8_t *end;
} found;

/* NULL for what is left over. */
static const uint8_t *find_entry(const table *into, found *to, const uint8_t *at, const uint8_t *end)
{
    if (end - at < 2 || *at != ENTRY_HEAD)
        return NULL;
    to->key = at + 1;
    to->value = check_key(into->of, to->key, end);
    if (to->value == NULL || to->value == end)
        return NULL;
    to->length = to->value - to->key;
    to->hash = hash_bytes(into->seed, to->key, to->length);
    search_slot(into, to->hash);
    int64_t count = 0;
    at = *to->value == NIL ? to->value + 1 : read_count(to->value, end, FIXARRAY, ARRAY16, &count);
    for (int64_t i = 0; at != NULL && i < count; i++)
        at = at == end ? NULL : skip_scalar(at, end);
    to->end = at;
    return at;
}

/* False for what is left over, and where memory is missing. */
static bool put_entry(restoring *by, const found *entry)
{
    table *into = by->into;
    int64_t row = table_find(into, entry->key, entry->length, entry->hash);
    if (*entry->value == NIL) {
        by->out_of_memory = row != ABSENT && !table_remove(into, row, entry->hash);
        return !by->out_of_memory;
    }
    if (row == ABSENT)
        row = table_add(into, entry->key, entry->length, entry->hash, by->group);
    chunk *to = row == ABSENT ? NULL : table_own(into, row);
    by->out_of_memory = to == NULL;
    return to != NULL && read_value(by, to, row % ROWS, entry->value, entry->end) == entry->end;
}

static bool put_entries(restoring *by, const found *these, int64_t count)
{
    int64_t rows[TOGETHER];
    for (int64_t i = 0; i < count; i++)
        rows[i] = search_row(by->into, these[i].hash);
    for (int64_t i = 0; i < count; i++)
        search_key(by->into, rows[i]);
    for (int64_t i = 0; i < count; i++)
        if (!put_entry(by, these + i))
            return false;
    return true;
}

/* Adds the entries of a key group, and applies tombstones. Returns LEFT_OVER for a group with anything that is not
 * certain: some of its entries are there then, and all are to be put again. Otherwise TAKEN, or NO_MEMORY.
 */
int32_t tg_table_restore(table *into, const uint8_t *bytes, int64_t length, int32_t group, int64_t expected)
{
    restoring by = {into, (uint16_t)group, false};
    const uint8_t *at = bytes, *end = bytes + length;
    int64_t count;
    at = length == 0 ? NULL : read_count(at, end, FIXARRAY, ARRAY16, &count);
    if (at == NULL || count != expected)
        return LEFT_OVER;
    found these[TOGETHER];
    for (int64_t left = count; left > 0;) {
        int64_t some = 0;
        for (; some < TOGETHER && some < left && at != NULL; some++)
            at = find_entry(into, these + some, at, end);
        if (at == NULL || !put_entries(&by, these, some))
            return by.out_of_memory ? NO_MEMORY : LEFT_OVER;
        left -= some;
    }
    return at == end ? TAKEN : LEFT_OVER;
}
