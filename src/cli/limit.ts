import type { Command } from './arguments.ts'

export const limitCommand: Command = {
  name: 'limit',
  about: 'check and consume a rate limit; exit status 1 if it refuses',
  arguments: { identifier: 'who or what is limited: a user id, an IP address or any other text' },
  options: {
    limit: { value: '<n>', about: 'tokens allowed in a window', isRequired: true },
    duration: { value: '<duration>', about: 'length of the window', isRequired: true },
    namespace: { value: '<name>', about: 'namespace of the limit; default: default' },
    cost: { value: '<n>', about: 'tokens to take; default 1; 0 reads the limit without taking any' },
  },
  example: 'limit user_123 --namespace emails --limit 10 --duration 1m',
  async run(given) {
    const reply = await (await given.client()).post<{
      success: boolean
      limit: number
      remaining: number
      reset: number
    }>('ratelimits.limit', {
      identifier: given.argument('identifier'),
      limit: given.whole('limit', 1),
      duration: given.duration('duration'),
      namespace: given.text('namespace'),
      cost: given.whole('cost'),
    })
    const { success, limit, remaining, reset } = reply
    const resetAt = new Date(reset).toISOString()
    given.print(`${success ? 'passed' : 'refused'}  ${remaining} of ${limit} left  resets ${resetAt}`, reply)
    return success ? 0 : 1
  },
}
