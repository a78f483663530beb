/**
 * For `setDefaultTimeout` in test files that start processes or run for long. The runner's default of five seconds is for
 * functions, and it resets a changed value after each file.
 */
export const SLOW_MS = 120_000
