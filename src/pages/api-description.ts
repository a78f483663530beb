import type { Endpoint } from '../doors/http/endpoint.ts'
import type { Samples } from './examples.ts'
import type { JsonSchema } from './json-schema.ts'

/** What the pages and `/openapi.json` say of one of the APIs, besides what its endpoints define themselves. */
export type ApiDescription = {
  /** As people call it: `v2`. */
  readonly name: string
  /** Paragraphs above its methods; code between backticks. */
  readonly about: string
  /** Groups of methods, in their order → what they are about. */
  readonly groups: Readonly<Record<string, string>>
  /** Before the names of its groups and methods, which another API has too. Empty for the first API. */
  readonly tagPrefix: string
  readonly idPrefix: string
  /** Method → the rights that its root key needs. */
  readonly needs: Readonly<Record<string, string>>
  /** Further sentences about a method. */
  remarksOn(method: string, endpoint: Endpoint): string[]
  readonly samples: Samples
  /** The errors of an endpoint, in the order of their statuses. */
  errorsOf(method: string, endpoint: Endpoint, publicUrl: string): readonly DescribedError[]
  /** Name and schema of an error's body. */
  readonly errorSchema: readonly [name: string, schema: JsonSchema]
}

export type DescribedError = {
  readonly status: number
  /** Names it in the description, and its page: `/errors/<name>`. */
  readonly name: string
  readonly about: string
  /** As it is answered. */
  readonly example: unknown
}
