/* The rows of a table that have changed in an interval, the keys that were removed in it, and moments of a table.
 *
 * A row may be removed and used for another key later. So a removed key is remembered itself; that its row may also be
 * listed does no harm, because a snapshot writes what the row has at its moment.
 */
#include "table.h"

#include <stdlib.h>

enum { ROWS_FIRST = 256, REMOVED_FIRST = 16 };

/* ---- lists ---- */

changes *tg_changes_new(void)
{
    return calloc(1, sizeof(changes));
}

void tg_changes_free(changes *of)
{
    key_set_end(&of->removed);
    free(of->rows);
    free(of->marks);
    free(of->groups);
    free(of);
}

/* Nothing is added any more. */
void tg_changes_close(changes *of)
{
    free(of->marks);
    of->marks = NULL;
    of->marked = 0;
}

int64_t tg_changes_count(const changes *of)
{
    return of->count + of->removed.count;
}

static bool marks_grow(changes *of, int64_t row)
{
    int64_t marked = of->marked < ROWS_FIRST ? ROWS_FIRST : of->marked;
    while (marked <= row)
        marked *= 2;
    uint8_t *grown = calloc((size_t)marked / 8, 1);
    if (grown == NULL)
        return false;
    if (of->marks != NULL)
        memcpy(grown, of->marks, (size_t)of->marked / 8);
    free(of->marks);
    of->marks = grown;
    of->marked = marked;
    return true;
}

static bool add_row(changes *to, int64_t row)
{
    if (row >= to->marked && !marks_grow(to, row))
        return false;
    if (bit_get(to->marks, row))
        return true;
    if (to->count == to->capacity) {
        int64_t capacity = to->capacity == 0 ? ROWS_FIRST : to->capacity * 2;
        uint32_t *grown = realloc(to->rows, (size_t)capacity * sizeof(uint32_t));
        if (grown == NULL)
            return false;
        to->rows = grown;
        to->capacity = capacity;
    }
    bit_set(to->marks, row);
    to->rows[to->count++] = (uint32_t)row;
    return true;
}

static bool add_removed(changes *to, const uint8_t *key, int64_t length, uint64_t hash, uint16_t group)
{
    if (to->removed.capacity == 0 && !key_set_begin(&to->removed, REMOVED_FIRST))
        return false;
    uint8_t *room = key_set_room(&to->removed, length);
    if (room == NULL)
        return false;
    memcpy(room, key, (size_t)length);
    int64_t number = key_set_add(&to->removed, length, hash);
    if (number == NO_ROOM)
        return false;
    if (to->groups_capacity < to->removed.capacity) {
        uint16_t *grown = realloc(to->groups, (size_t)to->removed.capacity * sizeof(uint16_t));
        if (grown == NULL)
            return false;
        to->groups = grown;
        to->groups_capacity = to->removed.capacity;
    }
    to->groups[number] = group;
    return true;
}

/* The keys of a batch, all of which have rows. As everywhere here, returns 0 if memory is missing. */
int32_t tg_changes_add(changes *to, const batch *from)
{
    for (int64_t i = 0; i < from->keys.count; i++)
        if (!add_row(to, from->rows[i]))
            return 0;
    return 1;
}

/* The keys of a batch that were removed. */
int32_t tg_changes_add_removed(changes *to, const batch *from)
{
    for (int64_t i = 0; i < from->keys.count; i++) {
        int64_t length;
        const uint8_t *key = key_set_key(&from->keys, i, &length);
        if (from->rows[i] != ABSENT && !add_removed(to, key, length, from->keys.hashes[i], from->groups[i]))
            return 0;
    }
    return 1;
}

/* What another list has. */
int32_t tg_changes_join(changes *to, const changes *from)
{
    for (int64_t i = 0; i < from->count; i++)
        if (!add_row(to, from->rows[i]))
            return 0;
    for (int64_t i = 0; i < from->removed.count; i++) {
        int64_t length;
        const uint8_t *key = key_set_key(&from->removed, i, &length);
        if (!add_removed(to, key, length, from->removed.hashes[i], from->groups[i]))
            return 0;
    }
    return 1;
}

/* ---- moments ---- */

static void hold(moment *of, const table *from, int64_t number)
{
    if (of->chunks[number] == NULL) {
        of->chunks[number] = from->chunks[number];
        __atomic_add_fetch(&from->chunks[number]->holders, 1, __ATOMIC_RELAXED);
    }
}

/* The whole table, or the chunks with these rows. */
moment *tg_moment_new(const table *from, const changes *rows)
{
    moment *made = malloc(sizeof(moment));
    if (made == NULL)
        return NULL;
    *made = (moment){from->of, calloc((size_t)from->chunk_count + 1, sizeof(chunk *)), from->chunk_count};
    if (made->chunks == NULL) {
        free(made);
        return NULL;
    }
    for (int64_t i = 0; rows == NULL && i < from->chunk_count; i++)
        hold(made, from, i);
    for (int64_t i = 0; rows != NULL && i < rows->count; i++)
        hold(made, from, rows->rows[i] / ROWS);
    return made;
}

static void let_go(moment *of, int64_t number)
{
    chunk_release(of->chunks[number]);
    of->chunks[number] = NULL;
}

void tg_moment_free(moment *of)
{
    for (int64_t i = 0; i < of->count; i++)
        let_go(of, i);
    free(of->chunks);
    free(of);
}

/* How many chunks there are. */
int64_t tg_moment_chunks(const moment *of)
{
    return of->count;
}

/* The keys in a chunk, as long as the moment has it. There is room for ROWS. */
int64_t tg_moment_keys(const moment *of, int64_t number, const uint8_t **keys, int32_t *lengths)
{
    const chunk *from = of->chunks[number];
    int64_t count = 0;
    for (int32_t i = 0; i < ROWS; i++)
        if (bit_get(from->live, i)) {
            int64_t length;
            keys[count] = chunk_key(from, i, &length);
            lengths[count++] = (int32_t)length;
        }
    return count;
}

void tg_moment_let_go(moment *of, int64_t number)
{
    let_go(of, number);
}
