/* Records of JSON to columns: strict, and only what is certain. Any other record is left over, to msgspec.
 *
 * A record that is taken has exactly the values that msgspec makes of it (ADR 67). Values are read in place,
 * only strings that are needed are copied; nothing of the records is kept.
 */
#include "columns.h"
#include "json_names.h"
#include "json_numbers.h"
#include "json_text.h"

enum { SKIP_DEPTH_MAX = 64, OFFSET_BYTES = 6 };

static const uint8_t *read_value(column *to, const uint8_t *at, const uint8_t *end);

/* ---- values ---- */

static const uint8_t *read_literal(const uint8_t *at, const uint8_t *end, const char *word, int32_t length)
{
    return end - at >= length && memcmp(at, word, (size_t)length) == 0 ? at + length : NULL;
}

static const uint8_t *read_boolean(column *to, const uint8_t *at, const uint8_t *end)
{
    bool value = *at == 't';
    at = value ? read_literal(at, end, "true", 4) : read_literal(at, end, "false", 5);
    if (at == NULL || !column_room(to))
        return NULL;
    if (to->values != NULL) {
        if (value)
            bit_set(to->values, to->length);
        else
            bit_clear(to->values, to->length);
    }
    to->length++;
    return at;
}

/* The cases are spelt out so that the compiler knows each width. */
static const uint8_t *read_whole(column *to, const uint8_t *at, const uint8_t *end)
{
    int64_t value;
    at = read_integer(at, end, &value);
    if (at == NULL || !column_room(to))
        return NULL;
    int64_t row = to->length;
    bool fits = true;
    switch (to->type->kind) {
    case TINYINT:
        fits = value == (int8_t)value;
        if (to->values != NULL)
            ((int8_t *)to->values)[row] = (int8_t)value;
        break;
    case SMALLINT:
        fits = value == (int16_t)value;
        if (to->values != NULL)
            ((int16_t *)to->values)[row] = (int16_t)value;
        break;
    case INT:
        fits = value == (int32_t)value;
        if (to->values != NULL)
            ((int32_t *)to->values)[row] = (int32_t)value;
        break;
    default:
        if (to->values != NULL)
            ((int64_t *)to->values)[row] = value;
    }
    to->length++;
    return fits ? at : NULL;
}

static const uint8_t *read_floating(column *to, const uint8_t *at, const uint8_t *end)
{
    number found;
    double value;
    at = read_number(at, end, &found);
    if (at == NULL || !double_of(&found, &value) || !column_room(to))
        return NULL;
    int64_t row = to->length++;
    if (to->type->kind == DOUBLE) {
        if (to->values != NULL)
            ((double *)to->values)[row] = value;
        return at;
    }
    if (value >= FLOAT_END || value <= -FLOAT_END)
        return NULL;
    if (to->values != NULL)
        ((float *)to->values)[row] = (float)value;
    return at;
}

/* The text between quotes, in `*from` and `*to`; escapes are left over, because no value that is read here needs one. */
static const uint8_t *read_plain(const uint8_t *at, const uint8_t *end, const uint8_t **from, const uint8_t **to)
{
    bool escaped;
    if (*at != '"')
        return NULL;
    *from = at + 1;
    *to = string_end(at + 1, end, false, &escaped);
    return *to == NULL || escaped ? NULL : *to + 1;
}

static const uint8_t *read_decimal(column *to, const uint8_t *at, const uint8_t *end)
{
    number found;
    int128 units;
    if (*at == '"') {
        const uint8_t *from, *stop;
        at = read_plain(at, end, &from, &stop);
        if (at == NULL || read_number_text(from, stop, &found) != stop)
            return NULL;
    } else
        at = read_number(at, end, &found);
    if (at == NULL || !decimal_of(&found, to->type->precision, to->type->scale, &units) || !column_room(to))
        return NULL;
    if (to->values != NULL)
        ((int128 *)to->values)[to->length] = units;
    to->length++;
    return at;
}

static const uint8_t *read_calendar(column *to, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *from, *stop;
    at = read_plain(at, end, &from, &stop);
    if (at == NULL || !column_room(to))
        return NULL;
    int64_t row = to->length++;
    if (to->type->kind == DATE) {
        int32_t days;
        if (!read_date(from, stop, &days))
            return NULL;
        if (to->values != NULL)
            ((int32_t *)to->values)[row] = days;
        return at;
    }
    int64_t micros;
    if (!read_moment(from, stop, to->type->kind == TIMESTAMP, &micros))
        return NULL;
    if (to->type->precision == NEEDS_OFFSET && stop[-1] != 'Z' && stop[-OFFSET_BYTES] != '+' && stop[-OFFSET_BYTES] != '-')
        return NULL;
    if (to->values != NULL)
        ((int64_t *)to->values)[row] = micros;
    return at;
}

static bool put_unescaped(column *to, const uint8_t *from, const uint8_t *stop)
{
    if (!texts_reserve(&to->texts, stop - from))
        return texts_failed(to);
    texts_commit(&to->texts, (view *)to->values + to->length, unescape(to->texts.next, from, stop));
    return true;
}

static const uint8_t *read_string(column *to, const uint8_t *at, const uint8_t *end)
{
    bool escaped;
    if (*at != '"')
        return NULL;
    const uint8_t *from = at + 1, *stop = string_end(from, end, false, &escaped);
    if (stop == NULL || !column_room(to))
        return NULL;
    if (to->values != NULL) {
        view *place = (view *)to->values + to->length;
        if (UNLIKELY(escaped)) {
            if (!put_unescaped(to, from, stop))
                return NULL;
        } else if (!texts_copy(&to->texts, place, from, (int32_t)(stop - from), end)) {
            texts_failed(to);
            return NULL;
        }
    }
    to->length++;
    return stop + 1;
}

static const uint8_t *read_binary(column *to, const uint8_t *at, const uint8_t *end)
{
    const uint8_t *from, *stop;
    at = read_plain(at, end, &from, &stop);
    if (at == NULL || !column_room(to))
        return NULL;
    /* Also for a column that is not returned: decoding is the check. */
    if (!texts_reserve(&to->texts, stop - from)) {
        texts_failed(to);
        return NULL;
    }
    int32_t bytes = decode_base64(to->texts.next, from, stop);
    if (bytes < 0)
        return NULL;
    if (to->values != NULL)
        texts_commit(&to->texts, (view *)to->values + to->length, bytes);
    to->length++;
    return at;
}

/* ---- undeclared fields ---- */

static const uint8_t *skip_string(const uint8_t *at, const uint8_t *end)
{
    bool escaped;
    if (at == end || *at != '"')
        return NULL;
    at = string_end(at + 1, end, true, &escaped);
    return at == NULL ? NULL : at + 1;
}

static const uint8_t *skip_colon(const uint8_t *at, const uint8_t *end)
{
    at = skip_space(at, end);
    return at < end && *at == ':' ? skip_space(at + 1, end) : NULL;
}

static const uint8_t *skip_digits(const uint8_t *at, const uint8_t *end)
{
    uint64_t digits = 0;
    const uint8_t *stop = read_digits(at, end, &digits);
    return stop == at ? NULL : stop;
}

/* Of any size, unlike what is read. */
static const uint8_t *skip_number(const uint8_t *at, const uint8_t *end)
{
    at += *at == '-';
    const uint8_t *start = at;
    at = skip_digits(at, end);
    if (at == NULL || (*start == '0' && at - start > 1))
        return NULL;
    if (at < end && *at == '.' && (at = skip_digits(at + 1, end)) == NULL)
        return NULL;
    if (at == end || (*at | 0x20) != 'e')
        return at;
    at++;
    at += at < end && (*at == '+' || *at == '-');
    return skip_digits(at, end);
}

static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end, int32_t depth);

/* From after the bracket that opens an object or an array. */
static const uint8_t *skip_members(const uint8_t *at, const uint8_t *end, uint8_t closing, int32_t depth)
{
    at = skip_space(at, end);
    if (at < end && *at == closing)
        return at + 1;
    for (;;) {
        if (closing == '}') {
            at = skip_string(at, end);
            at = at == NULL ? NULL : skip_colon(at, end);
            if (at == NULL)
                return NULL;
        }
        at = skip_value(at, end, depth);
        if (at == NULL)
            return NULL;
        at = skip_space(at, end);
        if (at == end)
            return NULL;
        if (*at == closing)
            return at + 1;
        if (*at != ',')
            return NULL;
        at = skip_space(at + 1, end);
    }
}

static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end, int32_t depth)
{
    if (at == end)
        return NULL;
    switch (*at) {
    case '"':
        return skip_string(at, end);
    case 'n':
        return read_literal(at, end, "null", 4);
    case 't':
        return read_literal(at, end, "true", 4);
    case 'f':
        return read_literal(at, end, "false", 5);
    case '{':
    case '[':
        return depth == SKIP_DEPTH_MAX ? NULL : skip_members(at + 1, end, *at == '{' ? '}' : ']', depth + 1);
    default:
        return skip_number(at, end);
    }
}

/* ---- objects and arrays ---- */

/* The name that begins here, after a quote; moves `*at` past the closing one. */
static name *find_name(vocabulary *words, const uint8_t **at, const uint8_t *end)
{
    bool escaped;
    const uint8_t *begin = *at, *quote = string_end(begin, end, true, &escaped);
    if (quote == NULL)
        return NULL;
    *at = quote + 1;
    int32_t size = (int32_t)(quote + 1 - begin);
    return escaped ? names_find_escaped(words, begin, size) : names_find(words, begin, size);
}

/* The value of a member. A repeated name is left over: of msgspec's the last one counts. */
static const uint8_t *read_member(column *object, const name *of, const uint8_t *at, const uint8_t *end)
{
    if (of->field == STRANGER)
        return object->run->strict ? NULL : skip_value(at, end, 0);
    column *to = object->children + of->field;
    if (UNLIKELY(to->length != object->length))
        return NULL;
    return read_value(to, at, end);
}

/* From after the opening bracket. Each child has grown by one afterwards. `needs_field`: members of which none is
 * declared are left over. */
static const uint8_t *read_members(column *object, const uint8_t *at, const uint8_t *end, bool needs_field)
{
    name *before = &object->words->start;
    int32_t seen = 0;
    at = skip_space(at, end);
    bool empty = at < end && *at == '}';
    for (; !empty; at = skip_space(at + 1, end)) {
        if (UNLIKELY(at == end || *at != '"'))
            return NULL;
        at++;
        name *here = before->next;
        if (LIKELY(here != NULL && name_is_here(here, at, end)))
            at += here->size;
        else {
            here = find_name(object->words, &at, end);
            if (here == NULL)
                return NULL;
            before->next = here;
        }
        if (LIKELY(at < end && *at == ':'))
            at = skip_space(at + 1, end);
        else if ((at = skip_colon(at, end)) == NULL)
            return NULL;
        seen += here->field != STRANGER;
        if (at == end || (at = read_member(object, here, at, end)) == NULL)
            return NULL;
        at = skip_space(at, end);
        if (UNLIKELY(at == end))
            return NULL;
        if (*at == '}')
            break;
        if (*at != ',')
            return NULL;
        before = here;
    }
    if (LIKELY(seen == object->type->count))
        return at + 1;
    if (UNLIKELY(seen == 0 && needs_field && !empty))
        return NULL;
    return column_put_missing(object) ? at + 1 : NULL;
}

static const uint8_t *read_struct(column *to, const uint8_t *at, const uint8_t *end)
{
    if (*at != '{' || !column_room(to))
        return NULL;
    at = read_members(to, at + 1, end, false);
    to->length += at != NULL; /* its children are not complete otherwise */
    return at;
}

static const uint8_t *read_array(column *to, const uint8_t *at, const uint8_t *end)
{
    if (*at != '[' || !column_room(to))
        return NULL;
    at = skip_space(at + 1, end);
    bool empty = at < end && *at == ']';
    for (; !empty; at = skip_space(at + 1, end)) {
        if (at == end || (at = read_value(to->children, at, end)) == NULL)
            return NULL;
        at = skip_space(at, end);
        if (at == end)
            return NULL;
        if (*at == ']')
            break;
        if (*at != ',')
            return NULL;
    }
    column_end_list(to);
    return at + 1;
}

static const uint8_t *read_entry(column *entries, const uint8_t *at, const uint8_t *end)
{
    column *keys = entries->children, *values = keys + 1;
    if (at == end || !column_room(entries) || (at = read_string(keys, at, end)) == NULL)
        return NULL;
    at = skip_colon(at, end);
    at = at == NULL || at == end ? NULL : read_value(values, at, end);
    entries->length += at != NULL;
    return at;
}

/* A repeated key is left over: its last value counts, in the first place. */
static const uint8_t *read_map(column *to, const uint8_t *at, const uint8_t *end)
{
    if (*at != '{' || !column_room(to))
        return NULL;
    column *entries = to->children;
    int64_t first = entries->length;
    at = skip_space(at + 1, end);
    bool empty = at < end && *at == '}';
    for (; !empty; at = skip_space(at + 1, end)) {
        at = read_entry(entries, at, end);
        at = at == NULL ? NULL : skip_space(at, end);
        if (at == NULL || at == end)
            return NULL;
        if (*at == '}')
            break;
        if (*at != ',')
            return NULL;
    }
    column_end_list(to);
    return keys_differ(entries->children, first) ? at + 1 : NULL;
}

/* `at` is before the end. */
static const uint8_t *read_value(column *to, const uint8_t *at, const uint8_t *end)
{
    if (UNLIKELY(*at == 'n')) {
        at = read_literal(at, end, "null", 4);
        return at != NULL && column_put_null(to) ? at : NULL;
    }
    switch (to->type->kind) {
    case BOOLEAN:
        return read_boolean(to, at, end);
    case TINYINT:
    case SMALLINT:
    case INT:
    case BIGINT:
        return read_whole(to, at, end);
    case FLOAT:
    case DOUBLE:
        return read_floating(to, at, end);
    case DECIMAL:
        return read_decimal(to, at, end);
    case STRING:
        return read_string(to, at, end);
    case BINARY:
        return read_binary(to, at, end);
    case DATE:
    case TIMESTAMP:
    case TIMESTAMP_NTZ:
        return read_calendar(to, at, end);
    case ARRAY:
        return read_array(to, at, end);
    case MAP:
        return read_map(to, at, end);
    case STRUCT:
        return read_struct(to, at, end);
    default:
        return NULL;
    }
}

/* ---- a batch ---- */

static bool begin_names(column *of)
{
    of->words = arena_take(of->run->scratch, sizeof(vocabulary));
    if (of->words == NULL || !names_begin(of->words, of->run->scratch, of->type->count))
        return false;
    for (int32_t i = 0; i < of->type->count; i++) {
        const field *child = of->type->children + i;
        if (!names_add(of->words, of->run->scratch, child->name, child->name_length))
            return false;
    }
    return true;
}

/* Of all structs, and what is in them. */
static bool begin_all_names(column *of)
{
    for (int32_t i = 0; i < of->type->count; i++)
        if (!begin_all_names(of->children + i))
            return false;
    return of->type->kind != STRUCT || begin_names(of);
}

static bool read_record(column *record, const void *needs_field, const uint8_t *at, const uint8_t *end)
{
    at = skip_space(at, end);
    if (at == end || *at != '{')
        return false;
    at = read_members(record, at + 1, end, *(const bool *)needs_field);
    return at != NULL && skip_space(at, end) == end;
}

int32_t tg_json_decode(const field *record, int32_t flags, const uint8_t *const *values, const int32_t *lengths,
                       int64_t count, int64_t *left, int64_t *left_count, struct ArrowArray *array,
                       struct ArrowSchema *schema)
{
    bool needs_field = (flags & NEEDS_FIELD) != 0;
    decoding by = {begin_all_names, read_record, &needs_field, (flags & STRICT) != 0};
    return records_decode(record, &by, values, lengths, count, left, left_count, array, schema);
}
