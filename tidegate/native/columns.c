/* See columns.h. */
#include "columns.h"

#include <stdio.h>

enum {
    ENTRIES_MAX = 64, /* of a map: each key is compared with each */
    TEXT_FIRST_BYTES = 4096,
    FORMAT_BYTES = 32,
    CAPACITY_MIN = 32,
    EXPORT_BYTES = 512, /* about what Arrow takes for a column */
};

static bool is_list(const column *this)
{
    return this->type->kind == ARRAY || this->type->kind == MAP;
}

static int64_t value_bytes(enum kind kind)
{
    switch (kind) {
    case TINYINT:
        return 1;
    case SMALLINT:
        return 2;
    case INT:
    case FLOAT:
    case DATE:
        return 4;
    case DECIMAL:
    case STRING:
    case BINARY:
        return 16;
    default:
        return 8;
    }
}

static int64_t values_bytes(const column *of, int64_t count)
{
    switch (of->type->kind) {
    case BOOLEAN:
        return bits_bytes(count);
    case STRUCT:
        return 0;
    default: /* a list has an offset more than values */
        return (count + 1) * value_bytes(of->type->kind);
    }
}

/* Room for twice as many; the former place stays in the arena, unused. */
bool column_grow(column *to)
{
    int64_t capacity = to->capacity < CAPACITY_MIN ? CAPACITY_MIN : to->capacity * 2;
    uint8_t *known = bits_new(to->run->owner, capacity);
    void *values = arena_take(to->run->owner, values_bytes(to, capacity));
    if (known == NULL || values == NULL) {
        to->run->out_of_memory = true;
        return false;
    }
    memcpy(known, to->known, (size_t)bits_bytes(to->capacity));
    memcpy(values, to->values, (size_t)values_bytes(to, to->capacity));
    to->known = known;
    to->values = values;
    to->capacity = capacity;
    return true;
}

static void put_zero(column *to)
{
    int64_t row = to->length, bytes;
    switch (to->type->kind) {
    case BOOLEAN:
        bit_clear(to->values, row);
        break;
    case ARRAY:
    case MAP:
        ((int64_t *)to->values)[row + 1] = ((int64_t *)to->values)[row];
        break;
    default:
        bytes = value_bytes(to->type->kind);
        memset((uint8_t *)to->values + row * bytes, 0, (size_t)bytes);
    }
}

bool column_put_null(column *to)
{
    if (!column_room(to))
        return false;
    if (to->known != NULL) {
        bit_clear(to->known, to->length);
        if (to->type->kind != STRUCT)
            put_zero(to);
    }
    to->length++;
    for (int32_t i = 0; to->type->kind == STRUCT && i < to->type->count; i++)
        if (!column_put_null(to->children + i))
            return false;
    return true;
}

bool column_put_missing(column *object)
{
    for (int32_t i = 0; i < object->type->count; i++)
        if (object->children[i].length == object->length && !column_put_null(object->children + i))
            return false;
    return true;
}

bool texts_failed(column *of)
{
    of->run->out_of_memory = true;
    return false;
}

bool column_put_text(column *to, const uint8_t *from, int32_t length, const uint8_t *end)
{
    if (!column_room(to))
        return false;
    if (to->values != NULL && !texts_copy(&to->texts, (view *)to->values + to->length, from, length, end))
        return texts_failed(to);
    to->length++;
    return true;
}

void column_end_list(column *to)
{
    to->length++;
    if (to->values != NULL)
        ((int64_t *)to->values)[to->length] = to->children->length;
}

static bool is_same_text(const column *of, int64_t one, int64_t other)
{
    const view *a = (const view *)of->values + one, *b = (const view *)of->values + other;
    if (a->length != b->length || memcmp(a->bytes, b->bytes, 4) != 0) /* the first bytes are in every view */
        return false;
    if (a->length <= VIEW_INLINE_BYTES)
        return memcmp(a->bytes, b->bytes, VIEW_INLINE_BYTES) == 0;
    return memcmp(texts_of(&of->texts, a), texts_of(&of->texts, b), (size_t)a->length) == 0;
}

bool keys_differ(const column *keys, int64_t first)
{
    if (keys->values == NULL)
        return true;
    if (keys->length - first > ENTRIES_MAX)
        return false;
    for (int64_t i = first; i < keys->length; i++)
        for (int64_t j = first; j < i; j++)
            if (is_same_text(keys, i, j))
                return false;
    return true;
}

void column_truncate(column *of, int64_t length)
{
    for (int64_t row = length; of->known != NULL && row < of->length; row++)
        bit_set(of->known, row);
    if (of->length > length)
        of->length = length;
    column *below = of->children;
    if (is_list(of))
        column_truncate(below, of->values == NULL ? below->length : ((int64_t *)of->values)[of->length]);
    for (int32_t i = 0; of->type->kind == STRUCT && i < of->type->count; i++)
        column_truncate(below + i, of->length);
}

static bool begin_column(column *this, const field *type, run *of, bool wanted, int64_t rows)
{
    *this = (column){.type = type, .run = of, .capacity = wanted ? rows : INT64_MAX};
    texts_begin(&this->texts, wanted ? of->owner : of->scratch, TEXT_FIRST_BYTES, TEXT_BYTES_MAX);
    if (wanted) {
        this->known = bits_new(of->owner, rows);
        this->values = arena_take(of->owner, values_bytes(this, rows));
        if (this->known == NULL || this->values == NULL)
            return false;
        if (is_list(this))
            *(int64_t *)this->values = 0;
    }
    if (type->count == 0)
        return true;
    this->children = arena_take(of->scratch, type->count * (int64_t)sizeof(column));
    if (this->children == NULL)
        return false;
    for (int32_t i = 0; i < type->count; i++)
        if (!begin_column(this->children + i, type->children + i, of, wanted, is_list(this) ? 0 : rows))
            return false;
    return true;
}

int64_t columns_bytes(const field *record, int64_t rows)
{
    int64_t bytes = EXPORT_BYTES;
    for (int32_t i = 0; i < record->count; i++)
        if (record->children[i].wanted)
            bytes += rows * value_bytes(record->children[i].kind) + bits_bytes(rows) + EXPORT_BYTES;
    return bytes;
}

/* The record itself is not a column; each field states whether it is one. */
bool columns_begin(column *record, const field *type, run *of, int64_t rows)
{
    *record = (column){.type = type, .run = of, .capacity = INT64_MAX};
    record->children = arena_take(of->scratch, type->count * (int64_t)sizeof(column));
    if (record->children == NULL)
        return false;
    for (int32_t i = 0; i < type->count; i++) {
        const field *child = type->children + i;
        if (!begin_column(record->children + i, child, of, child->wanted, rows))
            return false;
    }
    return true;
}

static const char *format_of(const field *type, char *text)
{
    static const char *const formats[] = {
        [BOOLEAN] = "b",  [TINYINT] = "c", [SMALLINT] = "s", [INT] = "i",   [BIGINT] = "l",          [FLOAT] = "f",
        [DOUBLE] = "g",   [STRING] = "vu", [BINARY] = "vz",  [DATE] = "tdD", [TIMESTAMP] = "tsu:UTC", [ARRAY] = "+L",
        [TIMESTAMP_NTZ] = "tsu:", [MAP] = "+L", [STRUCT] = "+s",
    };
    if (type->kind != DECIMAL)
        return formats[type->kind];
    snprintf(text, FORMAT_BYTES, "d:%d,%d", (int)type->precision, (int)type->scale);
    return text;
}

static bool export_column(column *from, struct ArrowArray *array, struct ArrowSchema *schema);

/* The children that are read, of a struct or a list, and then itself. */
static bool export_parent(column *from, bool all, int64_t missing, struct ArrowArray *array, struct ArrowSchema *schema)
{
    const field *type = from->type;
    arena *owner = from->run->owner;
    struct ArrowArray *arrays = arena_take(owner, type->count * (int64_t)sizeof(struct ArrowArray));
    struct ArrowSchema *schemas = arena_take(owner, type->count * (int64_t)sizeof(struct ArrowSchema));
    if (arrays == NULL || schemas == NULL)
        return false;
    int64_t count = 0;
    for (int32_t i = 0; i < type->count; i++)
        if (all || type->children[i].wanted) {
            if (!export_column(from->children + i, arrays + count, schemas + count))
                return false;
            count++;
        }
    char text[FORMAT_BYTES];
    const int64_t *offsets = is_list(from) ? from->values : NULL;
    return arrow_parent(array, owner, from->length, from->known, missing, offsets, arrays, count) &&
           arrow_schema(schema, owner, format_of(type, text), type->name, schemas, count);
}

static bool export_column(column *from, struct ArrowArray *array, struct ArrowSchema *schema)
{
    const field *type = from->type;
    arena *owner = from->run->owner;
    int64_t missing = bits_count_zeros(from->known, from->length);
    char text[FORMAT_BYTES];
    bool done;
    switch (type->kind) {
    case ARRAY:
    case MAP:
    case STRUCT:
        return export_parent(from, true, missing, array, schema);
    case STRING:
    case BINARY:
        done = arrow_views(array, owner, from->length, from->known, missing, from->values, &from->texts);
        break;
    default:
        done = arrow_values(array, owner, from->length, from->known, missing, from->values);
    }
    return done && arrow_schema(schema, owner, format_of(type, text), type->name, NULL, 0);
}

static bool read_records(column *rows, const decoding *by, const uint8_t *const *values, const int32_t *lengths,
                         int64_t count, int64_t *left, int64_t *left_count)
{
    *left_count = 0;
    for (int64_t i = 0; i < count; i++) {
        if (lengths[i] > 0 && by->read(rows, by->how, values[i], values[i] + lengths[i])) {
            rows->length++;
            continue;
        }
        if (rows->run->out_of_memory)
            return false;
        column_truncate(rows, rows->length);
        left[(*left_count)++] = i;
    }
    return true;
}

bool columns_export(column *record, struct ArrowArray *array, struct ArrowSchema *schema)
{
    return export_parent(record, false, 0, array, schema);
}

int32_t records_decode(const field *record, const decoding *by, const uint8_t *const *values, const int32_t *lengths,
                       int64_t count, int64_t *left, int64_t *left_count, struct ArrowArray *array,
                       struct ArrowSchema *schema)
{
    run of = {arena_new(columns_bytes(record, count)), arena_new(0), by->strict, false};
    column rows;
    bool done = of.owner != NULL && of.scratch != NULL && columns_begin(&rows, record, &of, count) &&
                (by->begin == NULL || by->begin(&rows)) &&
                read_records(&rows, by, values, lengths, count, left, left_count) &&
                columns_export(&rows, array, schema);
    if (of.scratch != NULL)
        arena_release(of.scratch);
    return of.owner == NULL ? 0 : arrow_finish(of.owner, done, array, schema);
}
