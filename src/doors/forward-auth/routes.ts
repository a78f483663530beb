import type { Endpoint } from '../http/endpoint.ts'
import { get } from '../v1/endpoint.ts'
import { EmptyReply } from '../v1/page.ts'
import { forward } from './forward.ts'
import { ForwardQuery } from './schema.ts'

/** Path, schemas and function of the endpoint. */
export const authRoutes: Endpoint[] = [
  get(
    '/v1/auth.forward',
    {
      input: ForwardQuery,
      reply: EmptyReply,
      summary: 'Let a proxy ask whether a request may pass',
      access: 'key',
      answersPostToo: true,
      isFastPath: true,
      errors: [
        'UNAUTHENTICATED',
        'FORBIDDEN',
        'DISABLED',
        'EXPIRED',
        'USAGE_EXCEEDED',
        'INSUFFICIENT_PERMISSIONS',
        'RATE_LIMITED',
      ],
      answerHeaders: {
        'X-Tollgate-Key-Id': 'Id of the key, where there is one.',
        'X-Tollgate-External-Id':
          'Your id of the key’s owner, where it has one; what is no visible ASCII character is percent-encoded, and so is `%`.',
        RateLimit:
          'The limit that refused, else the first counted: what remains `r`, seconds to its reset `t`.',
        'RateLimit-Policy': 'Its quota `q` and window `w` in seconds.',
        'Retry-After': 'With 429: seconds until the limit resets.',
        'WWW-Authenticate': 'With 401: how to present a key.',
      },
    },
    forward,
  ),
]
