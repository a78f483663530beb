/** True for the long campaigns too: `bun run nightly` sets it, CI does not. */
export const IS_NIGHTLY = process.env.TEST_NIGHTLY === '1'
