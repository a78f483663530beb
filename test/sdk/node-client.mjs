import { Ratelimit } from '@unkey/ratelimit'
import { Unkey } from '@unkey/api'
import { Unkey as UnkeyV1 } from 'unkey-api-v1'

/** A program of a user, run by Node: both APIs through the official clients. Prints what it saw as one line of JSON. */
const [url, rootKey] = process.argv.slice(2)
const v1 = new UnkeyV1({ rootKey, baseUrl: url })
const v2 = new Unkey({ rootKey, serverURL: url })

const { result: api } = await v1.apis.create({ name: 'on Node' })
const { data: made } = await v2.keys.createKey({ apiId: api.apiId, credits: { remaining: 3 } })
const { data: verified } = await v2.keys.verifyKey({ key: made.key })
const { result: verifiedInV1 } = await v1.keys.verify({ apiId: api.apiId, key: made.key })
await v2.keys.deleteKey({ keyId: made.keyId })
const { data: deleted } = await v2.keys.verifyKey({ key: made.key })

const limiter = new Ratelimit({ rootKey, baseUrl: url, namespace: 'on-node', limit: 1, duration: '1h' })
const limited = [await limiter.limit(made.keyId), await limiter.limit(made.keyId)].map(({ success }) => success)
const refused = await v2.apis.getApi({ apiId: 'api_missing1234' }).catch((cause) => cause.statusCode)

console.log(
  JSON.stringify({
    node: process.version,
    credits: [verified.credits, verifiedInV1.remaining],
    deleted: deleted.code,
    limited,
    refused,
  }),
)
