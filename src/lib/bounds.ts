/** What limits, costs, credits and refill amounts go up to: the largest whole number that JSON's numbers tell from its neighbours. */
export const COUNT_MAX = Number.MAX_SAFE_INTEGER
/** A hundred years in milliseconds: longer windows never end in practice, and their end must stay a safe integer. */
export const DURATION_MS_MAX = 3_155_760_000_000
/** The last instant a date can name, Unix milliseconds. */
export const TIME_MS_MAX = 8_640_000_000_000_000
