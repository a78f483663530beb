/** Largest limit, cost, refill amount and number of credits: up to here JSON numbers are exact. */
export const COUNT_MAX = Number.MAX_SAFE_INTEGER
/** A hundred years in ms. Longer windows never end in practice, and their end must stay a safe integer. */
export const DURATION_MS_MAX = 3_155_760_000_000
/** The last time that a Date can hold, Unix ms. */
export const TIME_MS_MAX = 8_640_000_000_000_000
