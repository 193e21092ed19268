/* Operations on a batch of keys of a table (`native/table.py`): columns in, columns out. See table.h. */
#include "msgpack.h"
#include "table.h"

#include <stdlib.h>

enum { AHEAD = 8 }; /* keys between two steps of a search */

/* ---- keys ---- */

static int64_t integer_at(const struct ArrowArray *column, int32_t width, int64_t row)
{
    switch (width) {
    case 1:
        return ((const int8_t *)lent_values(column, 1))[row];
    case 2:
        return ((const int16_t *)lent_values(column, 2))[row];
    case 4:
        return ((const int32_t *)lent_values(column, 4))[row];
    default:
        return ((const int64_t *)lent_values(column, 8))[row];
    }
}

/* The most bytes that a row's key may have. */
static int64_t key_room(const layout *of, const struct ArrowArray *const *columns, int64_t row)
{
    int64_t bytes = HEAD_BYTES + of->key_count * VALUE_BYTES;
    for (int32_t k = 0; k < of->key_count; k++)
        if (is_text(of->keys[k].kind) && lent_known(columns[k], row)) {
            int32_t length;
            lent_bytes(columns[k], row, &length);
            bytes += length;
        }
    return bytes;
}

static uint8_t *write_key_part(uint8_t *to, const part *of, const struct ArrowArray *column, int64_t row)
{
    if (!lent_known(column, row)) {
        *to = NIL;
        return to + 1;
    }
    if (of->kind == BOOLEAN) {
        *to = lent_boolean(column, row) ? YES : NO;
        return to + 1;
    }
    if (!is_text(of->kind))
        return write_integer(to, integer_at(column, of->width, row));
    int32_t length;
    const uint8_t *bytes = lent_bytes(column, row, &length);
    to = of->kind == STRING ? write_str_head(to, (uint32_t)length) : write_bin_head(to, (uint32_t)length);
    memcpy(to, bytes, (size_t)length);
    return to + length;
}

static bool number_rows(const table *in, batch *to, const struct ArrowArray *const *columns, int64_t count)
{
    for (int64_t row = 0; row < count; row++) {
        uint8_t *key = key_set_room(&to->keys, key_room(in->of, columns, row));
        if (key == NULL)
            return false;
        uint8_t *end = write_array_head(key, (uint32_t)in->of->key_count);
        for (int32_t k = 0; k < in->of->key_count; k++)
            end = write_key_part(end, in->of->keys + k, columns[k], row);
        int64_t known = to->keys.count;
        int64_t number = key_set_add(&to->keys, end - key, hash_bytes(in->seed, key, end - key));
        if (number == NO_ROOM)
            return false;
        if (number == known)
            to->first_rows[number] = (uint32_t)row;
        to->numbers[row] = (uint32_t)number;
    }
    return true;
}

static void find_rows(const table *in, batch *of)
{
    int64_t count = of->keys.count;
    for (int64_t i = 0; i < count + 3 * AHEAD; i++) {
        int64_t row = i - AHEAD, key = i - 2 * AHEAD, end = i - 3 * AHEAD;
        if (i < count)
            search_slot(in, of->keys.hashes[i]);
        if (row >= 0 && row < count)
            of->rows[row] = search_row(in, of->keys.hashes[row]);
        if (key >= 0 && key < count)
            search_key(in, of->rows[key]);
        if (end < 0)
            continue;
        int64_t length;
        const uint8_t *bytes = key_set_key(&of->keys, end, &length);
        of->rows[end] = search_end(in, of->rows[end], bytes, length, of->keys.hashes[end]);
    }
}

void tg_batch_free(batch *of)
{
    key_set_end(&of->keys);
    free(of->rows);
    free(of->groups);
    free(of->numbers);
    free(of->first_rows);
    free(of);
}

/* The keys of `count` rows. Columns have the types of the layout. */
batch *tg_batch_new(const table *in, const struct ArrowArray *const *columns, int64_t count)
{
    batch *made = calloc(1, sizeof(batch));
    if (made == NULL)
        return NULL;
    made->version = in->version;
    made->numbers = malloc((size_t)(count + 1) * sizeof(uint32_t));
    made->first_rows = malloc((size_t)(count + 1) * sizeof(uint32_t));
    if (made->numbers != NULL && made->first_rows != NULL && key_set_begin(&made->keys, count) &&
        number_rows(in, made, columns, count)) {
        made->rows = malloc((size_t)(made->keys.count + 1) * sizeof(int64_t));
        if (made->rows != NULL) {
            find_rows(in, made);
            return made;
        }
    }
    tg_batch_free(made);
    return NULL;
}

/* The number of keys, where the numbers of rows are, and how many keys do not exist. */
int64_t tg_batch_keys(const batch *of, const uint32_t **numbers, int64_t *absent)
{
    *numbers = of->numbers;
    *absent = 0;
    for (int64_t i = 0; i < of->keys.count; i++)
        *absent += of->rows[i] == ABSENT;
    return of->keys.count;
}

/* For each key that does not exist, the row in which it first occurs. */
void tg_batch_absent(const batch *of, uint32_t *rows)
{
    for (int64_t i = 0; i < of->keys.count; i++)
        if (of->rows[i] == ABSENT)
            *rows++ = of->first_rows[i];
}

/* Whether the state has changed since the keys were numbered, other than by this batch. */
int32_t tg_batch_is_stale(const table *in, const batch *of)
{
    return of->version != in->version;
}

/* ---- values ---- */

static void copy_values(const table *in, const batch *of, const part *field, column *to)
{
    int64_t count = of->keys.count, width = field->width;
    for (int64_t i = 0; i < count; i++) {
        int64_t row = of->rows[i], at = row % ROWS;
        const chunk *from = row == ABSENT ? NULL : in->chunks[row / ROWS];
        if (from == NULL || !bit_get((const uint8_t *)from + field->known, at)) {
            bit_clear(to->known, i);
            if (field->kind != BOOLEAN)
                memset((uint8_t *)to->values + i * width, 0, (size_t)width);
            continue;
        }
        const uint8_t *value = (const uint8_t *)from + field->values + at * width;
        if (field->kind != BOOLEAN)
            memcpy((uint8_t *)to->values + i * width, value, (size_t)width);
        else if (*value)
            bit_set(to->values, i);
        else
            bit_clear(to->values, i);
    }
    to->length = count;
}

static bool copy_texts(const table *in, const batch *of, const part *field, column *to)
{
    for (int64_t i = 0; i < of->keys.count; i++) {
        int64_t row = of->rows[i], at = row % ROWS;
        const chunk *from = row == ABSENT ? NULL : in->chunks[row / ROWS];
        if (from == NULL || !bit_get((const uint8_t *)from + field->known, at)) {
            if (!column_put_null(to))
                return false;
            continue;
        }
        const span *text = (const span *)((const uint8_t *)from + field->values) + at;
        const uint8_t *bytes = from->heap + text->offset;
        if (text->length > TEXT_BYTES_MAX || !column_put_text(to, bytes, (int32_t)text->length, from->heap + from->used))
            return false;
    }
    return true;
}

static void copy_presence(const batch *of, column *to)
{
    for (int64_t i = 0; i < of->keys.count; i++) {
        if (of->rows[i] == ABSENT)
            bit_clear(to->values, i);
        else
            bit_set(to->values, i);
    }
    to->length = of->keys.count;
}

/* A struct of whether each key exists, and its values, which `record` declares. Returns 0 if memory is missing. */
int32_t tg_batch_get(const table *in, const batch *of, const field *record, struct ArrowArray *array,
                     struct ArrowSchema *schema)
{
    run these = {arena_new(columns_bytes(record, of->keys.count)), arena_new(0), false, false};
    column rows;
    bool done = these.owner != NULL && these.scratch != NULL && columns_begin(&rows, record, &these, of->keys.count);
    if (done)
        copy_presence(of, rows.children);
    for (int32_t f = 0; done && f < in->of->value_count; f++) {
        column *to = rows.children + 1 + f;
        if (is_text(in->of->values[f].kind))
            done = copy_texts(in, of, in->of->values + f, to);
        else
            copy_values(in, of, in->of->values + f, to);
    }
    if (done) {
        rows.length = of->keys.count;
        done = columns_export(&rows, array, schema);
    }
    if (these.scratch != NULL)
        arena_release(these.scratch);
    return these.owner == NULL ? 0 : arrow_finish(these.owner, done, array, schema);
}

/* Rows for the keys that have none, in order, each with its key group; and chunks that may be changed. */
static bool own_rows(table *in, batch *of, const uint16_t *groups)
{
    for (int64_t i = 0; i < of->keys.count; i++) {
        if (of->rows[i] != ABSENT) {
            if (table_own(in, of->rows[i]) == NULL)
                return false;
            continue;
        }
        int64_t length;
        const uint8_t *key = key_set_key(&of->keys, i, &length);
        of->rows[i] = table_add(in, key, length, of->keys.hashes[i], *groups++);
        if (of->rows[i] == ABSENT)
            return false;
    }
    of->version = in->version;
    return true;
}

static void set_value(const part *field, chunk *to, int64_t at, const struct ArrowArray *from, int64_t i)
{
    uint8_t *known = chunk_bits(to, field->known);
    uint8_t *value = chunk_bits(to, field->values) + at * field->width;
    if (!lent_known(from, i)) {
        bit_clear(known, at);
        return;
    }
    bit_set(known, at);
    if (field->kind == BOOLEAN)
        *value = lent_boolean(from, i);
    else
        memcpy(value, (const uint8_t *)lent_values(from, field->width) + i * field->width, (size_t)field->width);
}

static bool set_text(const layout *of, const part *field, chunk *to, int64_t at, const struct ArrowArray *from,
                     int64_t i)
{
    uint8_t *known = chunk_bits(to, field->known);
    span *text = (span *)chunk_bits(to, field->values) + at;
    int32_t length = 0;
    const uint8_t *bytes = NULL;
    if (lent_known(from, i)) {
        bit_set(known, at);
        bytes = lent_bytes(from, i, &length);
    } else
        bit_clear(known, at);
    return chunk_set_text(of, to, text, bytes, length);
}

/* Sets the values of all keys. `groups` has the key groups of those that do not exist. Returns 0 if memory is missing.
 */
int32_t tg_batch_put(table *in, batch *of, const uint16_t *groups, const struct ArrowArray *const *values)
{
    if (!own_rows(in, of, groups))
        return 0;
    for (int32_t f = 0; f < in->of->value_count; f++) {
        const part *field = in->of->values + f;
        bool text = is_text(field->kind);
        for (int64_t i = 0; i < of->keys.count; i++) {
            int64_t row = of->rows[i];
            chunk *to = in->chunks[row / ROWS];
            if (!text)
                set_value(field, to, row % ROWS, values[f], i);
            else if (!set_text(in->of, field, to, row % ROWS, values[f], i))
                return 0;
        }
    }
    return 1;
}

/* Removes the keys that exist. The batch keeps their rows and key groups. Returns 0 if memory is missing. */
int32_t tg_batch_remove(table *in, batch *of)
{
    free(of->groups);
    of->groups = malloc((size_t)(of->keys.count + 1) * sizeof(uint16_t));
    if (of->groups == NULL)
        return 0;
    for (int64_t i = 0; i < of->keys.count; i++) {
        int64_t row = of->rows[i];
        if (row == ABSENT)
            continue;
        of->groups[i] = in->chunks[row / ROWS]->groups[row % ROWS];
        if (!table_remove(in, row, of->keys.hashes[i]))
            return 0;
    }
    return 1;
}
