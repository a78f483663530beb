import type { Command } from './arguments.ts'
import { Client } from './client.ts'

export const limitCommand: Command = {
  name: 'limit',
  about: 'one rate limit decision; ends with 1 when it refuses',
  positional: '<identifier>',
  options: {
    limit: { value: '<n>', about: 'tokens allowed in a window', isRequired: true },
    duration: { value: '<ms>', about: 'length of the window in milliseconds', isRequired: true },
    namespace: { value: '<name>', about: 'groups limits; default: default' },
    cost: { value: '<n>', about: 'tokens to take; default 1, 0 only looks' },
  },
  async run(given) {
    const reply = await new Client().post<{
      success: boolean
      limit: number
      remaining: number
      reset: number
    }>('ratelimits.limit', {
      identifier: given.positional,
      limit: given.whole('limit', 1),
      duration: given.whole('duration', 1),
      namespace: given.text('namespace'),
      cost: given.whole('cost'),
    })
    const { success, limit, remaining, reset } = reply
    const resetAt = new Date(reset).toISOString()
    given.print(`${success ? 'passed' : 'refused'}  ${remaining} of ${limit} left  resets ${resetAt}`, reply)
    return success ? 0 : 1
  },
}
