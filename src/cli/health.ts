import type { Command } from './arguments.ts'

/** For health checks of containers, which have no other HTTP client. */
export const healthCommand: Command = {
  name: 'health',
  about: 'check whether the server is ready; exit status 1 if not',
  example: 'health',
  async run(given) {
    const reply = await (await given.client()).get<{ status: string }>('liveness')
    given.print('ready', reply)
  },
}
