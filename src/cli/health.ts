import type { Command } from './arguments.ts'
import { Client } from './client.ts'

/** For a container's health check, where there is no other program to ask with. */
export const healthCommand: Command = {
  name: 'health',
  about: 'is the server ready? ends with 1 when it is not',
  async run(given) {
    const reply = await new Client().get<{ status: string }>('liveness')
    given.print('ready', reply)
  },
}
