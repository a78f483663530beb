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
      summary: 'Check a key for a reverse proxy',
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
        'X-Tollgate-Key-Id': 'Id of the key; absent if the key does not exist.',
        'X-Tollgate-External-Id':
          'Your id of the user or organisation, if the key has one. `%` and everything but visible ASCII are percent-encoded.',
        RateLimit:
          'The rate limit that refused, else the first one checked: `r` = tokens left, `t` = seconds until the window ends.',
        'RateLimit-Policy': 'The same rate limit: `q` = tokens per window, `w` = window in seconds.',
        'Retry-After': 'With 429: seconds until the window ends.',
        'WWW-Authenticate': 'With 401: how to present a key.',
      },
    },
    forward,
  ),
]
