import type { Command } from './arguments.ts'
import { erase } from './erase.ts'

export const identityCommands: Command[] = [
  {
    name: 'identity erase',
    about:
      'erase a person: identity, keys, and every name of theirs in counts and audit events; cannot be undone',
    positional: '<external id>',
    options: {
      id: { value: null, about: 'what is given is the identity’s id, not its external id' },
      yes: { value: null, about: 'do it without asking' },
    },
    run: (given) =>
      erase(given, {
        what: `${given.positional} and all keys of theirs`,
        method: 'identities.eraseIdentity',
        body: given.has('id') ? { identityId: given.positional } : { externalId: given.positional },
      }),
  },
]
