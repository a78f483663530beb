import { type Static, Type } from '@sinclair/typebox'

/** Parameters in a proxy's configuration. Unknown ones are refused: a misspelt parameter would otherwise check nothing. */
export const ForwardQuery = Type.Object(
  {
    apiId: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 256,
        description:
          'Recommended: keys of other APIs are then refused. Without it any key of this server passes.',
      }),
    ),
    permissions: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 4096,
        description:
          'What the key must be allowed to do: a permission, or several with `and`, `or` and parentheses, as in `admin or (documents.read and documents.list)`; or the JSON that `keys.verifyKey` takes.',
      }),
    ),
    ratelimit: Type.Optional(
      Type.Array(
        Type.String({
          minLength: 1,
          maxLength: 512,
          description:
            '`name`: a limit of the key or its identity. `name,cost=2` takes more than one token of it. `name,limit=100,duration=60000` needs none of that name; the duration is in milliseconds.',
        }),
        {
          maxItems: 100,
          description:
            'Limits to count besides those that count on every verification; give it again for each. As `name`, `name,cost=2` or `name,limit=100,duration=60000`.',
        },
      ),
    ),
  },
  { additionalProperties: false },
)
export type ForwardQuery = Static<typeof ForwardQuery>
