import { type Static, Type } from '@sinclair/typebox'

/** Parameters in a proxy's configuration. Unknown ones are refused: a misspelt parameter would otherwise check nothing. */
export const ForwardQuery = Type.Object(
  {
    apiId: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 256,
        description:
          'Id of an API; keys of other APIs are refused. Recommended: without it, a key of any API on this server passes.',
      }),
    ),
    permissions: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 4096,
        description:
          'Permissions that the key must have: one slug, or several with `and`, `or` and parentheses, as in `admin or (documents.read and documents.list)`. Also the JSON of `keys.verifyKey`.',
      }),
    ),
    ratelimit: Type.Optional(
      Type.Array(
        Type.String({
          minLength: 1,
          maxLength: 512,
          description:
            '`name`: a limit of the key or its identity. `name,cost=2`: takes two tokens. `name,limit=100,duration=60000`: a limit that need not be configured, with its window in milliseconds.',
        }),
        {
          maxItems: 100,
          description:
            'Rate limits to check, in addition to the key’s own limit, which is always checked. Repeat the parameter for several. Written as `name`, `name,cost=2` or `name,limit=100,duration=60000`.',
        },
      ),
    ),
  },
  { additionalProperties: false },
)
export type ForwardQuery = Static<typeof ForwardQuery>
