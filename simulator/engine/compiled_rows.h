/* What reports add up by device: entries are put device after device, and of one device in the order of time. */

/* Sort `order` by moment; those of one moment stay as they stand. `room` is for half of them. */
static void sort_row(const double *moment, i64 *order, i64 *room, i64 count)
{
    i64 half = count / 2, a = 0, b = half, i = 0;
    if (count < 2) return;
    sort_row(moment, order, room, half);
    sort_row(moment, order + half, room, count - half);
    if (!(moment[order[half]] < moment[order[half - 1]])) return;
    for (i64 k = 0; k < half; k++) room[k] = order[k];
    while (a < half) order[i++] = b < count && moment[order[b]] < moment[room[a]] ? order[b++] : room[a++];
}

/* Into `order` the entries of length (all, where `end` is NULL), owner after owner, each owner's by moment; entries of
 * owner o stand from first[o] to first[o + 1]. `first` has room for two more than owners. */
static void put_in_rows(
    i64 count, const i64 *owner, const double *moment, const double *end, i64 owners, i64 *first, i64 *order, i64 *room)
{
    for (i64 o = 0; o < owners + 2; o++) first[o] = 0;
    for (i64 i = 0; i < count; i++)
        if (!end || end[i] > moment[i]) first[owner[i] + 2]++;
    for (i64 o = 2; o < owners + 2; o++) first[o] += first[o - 1];
    for (i64 i = 0; i < count; i++)
        if (!end || end[i] > moment[i]) order[first[owner[i] + 1]++] = i;
    for (i64 o = 0; o < owners; o++) sort_row(moment, order + first[o], room, first[o + 1] - first[o]);
}

/* For each entry the last one of some length before it of its owner, or NONE; of those that begin together the first to
 * end comes first. */
void previous(
    i64 count, const i64 *owner, const double *start, const double *end, i64 owners, i64 *first, i64 *order, i64 *room,
    i64 *before)
{
    put_in_rows(count, owner, start, NULL, owners, first, order, room);
    for (i64 o = 0; o < owners; o++) {
        i64 lasting = NONE;
        for (i64 i = first[o], next; i < first[o + 1]; i = next) {
            for (next = i + 1; next < first[o + 1] && start[order[next]] == start[order[i]]; next++) ;
            sort_row(end, order + i, room, next - i);
            for (i64 k = i; k < next; k++) {
                before[order[k]] = lasting;
                if (end[order[k]] > start[order[k]]) lasting = order[k];
            }
        }
    }
}

/* The sum of values as numpy adds up a row, so that reports are the same without a compiler. */
static double row_sum(const double *value, i64 count)
{
    if (count > 128) {
        i64 half = count / 2 - count / 2 % 8;
        return row_sum(value, half) + row_sum(value + half, count - half);
    }
    double sum = 0.0, part[8];
    i64 i = 0;
    if (count >= 8) {
        for (; i < 8; i++) part[i] = value[i];
        for (; i < count - count % 8; i++) part[i % 8] += value[i];
        sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    }
    for (; i < count; i++) sum += value[i];
    return sum;
}

/* Seconds that the spans of each owner cover; `length` has room for all spans. */
void covered(
    i64 count, const i64 *owner, const double *start, const double *end, i64 owners, i64 *first, i64 *order, i64 *room,
    double *length, double *covered_s)
{
    put_in_rows(count, owner, start, end, owners, first, order, room);
    for (i64 o = 0; o < owners; o++) {
        i64 spans = 0;
        double begin = 0.0, reach = 0.0;
        for (i64 i = first[o]; i < first[o + 1]; i++) {
            if (i == first[o] || start[order[i]] > reach) {
                if (i > first[o]) length[spans++] = reach - begin;
                begin = start[order[i]];
                reach = end[order[i]];
            }
            reach = most(reach, end[order[i]]);
        }
        if (first[o] < first[o + 1]) length[spans++] = reach - begin;
        covered_s[o] = row_sum(length, spans);
    }
}

/* The most that each owner holds, of what it has at first (in `peak`) and what every entry adds at its moment. */
void peaks(
    i64 count, const i64 *owner, const double *moment, const double *change, i64 owners, i64 *first, i64 *order,
    i64 *room, double *peak)
{
    put_in_rows(count, owner, moment, NULL, owners, first, order, room);
    for (i64 o = 0; o < owners; o++) {
        double held = 0.0, at_first = peak[o];
        for (i64 i = first[o]; i < first[o + 1]; i++) {
            held += change[order[i]];
            peak[o] = most(peak[o], at_first + held);
        }
    }
}
