import { type Static, Type } from '@sinclair/typebox'
import type { Actor } from '../../api/root-keys/authorize.ts'
import type { ServerAnswer } from '../../api/server/ask-servers.ts'
import { WAIT_MS } from '../../records/questions.ts'
import { STANDINGS } from '../../verify/standing.ts'

/** What the servers on the database answer about a key or a root key. */
export const AskServersReply = Type.Object({
  servers: Type.Array(
    Type.Object({
      id: Type.String({ description: 'Id of the server. It outlives restarts.' }),
      host: Type.Optional(
        Type.String({ description: 'Name of its host. Only for operator root keys; absent otherwise.' }),
      ),
      isThis: Type.Boolean({ description: 'True = it is the server that answers this call.' }),
      code: Type.Optional(
        Type.Union(
          STANDINGS.map((standing) => Type.Literal(standing)),
          {
            description: `How it would end a verification now, by the state of the key alone: \`VALID\`, or why it refuses the key. Absent = it did not answer within ${WAIT_MS} ms, and perhaps has not heard of the last changes.`,
          },
        ),
      ),
      afterMs: Type.Optional(
        Type.Integer({
          description:
            'Milliseconds from the question to its answer. Absent for the server that answers this call, and without an answer.',
        }),
      ),
    }),
    {
      description:
        'The server that answers this call first, then those that were seen in the last minute, by host; at most 100 that do not answer.',
    },
  ),
})
export type AskServersReply = Static<typeof AskServersReply>

/** Hosts are the operators' business. */
export const askServersReply = (
  { isOperator }: Pick<Actor, 'isOperator'>,
  answers: readonly ServerAnswer[],
): AskServersReply => ({
  servers: answers.map(({ nodeId: id, host, isThis, code, afterMs }) => ({
    id,
    ...(isOperator && { host }),
    isThis,
    ...(code !== null && { code }),
    ...(afterMs !== null && { afterMs }),
  })),
})
