/**
 * For `setDefaultTimeout` at the head of a test file that starts processes or works for long: the runner's default of
 * five seconds is for functions, and it forgets a changed one after each file.
 */
export const SLOW_MS = 60_000
