/** Largest signed 32-bit integer: how limits, costs, credits and refill amounts are stored. */
export const INT32_MAX = 2_147_483_647
/** A hundred years in milliseconds: longer windows never end in practice, and their end must stay a safe integer. */
export const DURATION_MS_MAX = 3_155_760_000_000
/** The last instant a date can name, Unix milliseconds. */
export const TIME_MS_MAX = 8_640_000_000_000_000
