import type { Command } from './arguments.ts'

/** For health checks of containers, which have no other HTTP client. */
export const healthCommand: Command = {
  name: 'health',
  about: 'is the server ready? ends with 1 when it is not',
  example: 'health',
  async run(given) {
    const reply = await (await given.client()).get<{ status: string }>('liveness')
    given.print('ready', reply)
  },
}
