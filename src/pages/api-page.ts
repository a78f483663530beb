import type { JsonSchema } from './json-schema.ts'
import type { OpenApiDocument, Operation } from './openapi.ts'
import { pageOf } from './page.ts'

/*
 * The API reference as HTML, made on the server. Not Scalar's viewer (1.72.1), which installs 268 packages (278 MB) and
 * sends 4 MB of script for one page.
 */

/** A page that the filter finds too, by words in lower case. */
export type Guide = { href: string; title: string; words: string }

/**
 * @param document The answer of `/openapi.json`, the page's only source.
 * @param sendable Names of methods, such as `keys.createKey`, that can be sent from the page; null = there is no dashboard.
 */
export function apiPage(
  document: OpenApiDocument,
  guides: readonly Guide[],
  sendable: { has(name: string): boolean } | null,
): string {
  // A path that answers two methods answers both in the same way, so it is described once.
  const operations = Object.entries(document.paths).flatMap(([path, methods]) => {
    const method = Object.keys(methods).join(' ').toUpperCase()
    return Object.values(methods)
      .slice(0, 1)
      .map((operation) => ({ path, method, operation }))
  })
  const base = document.servers[0]?.url ?? ''
  const membersOf = (tag: string) => operations.filter(({ operation }) => operation.tags.includes(tag))
  const apis = document['x-tagGroups'].map(({ name, description, tags }) => ({
    name,
    description,
    groups: document.tags
      .filter((tag) => tags.includes(tag.name))
      .map((tag) => ({ ...tag, members: membersOf(tag.name) })),
  }))
  return pageOf({
    title: 'API',
    section: '/docs/api',
    isSending: sendable !== null,
    side: `<div class="filter" id="filter" hidden><input type="search" placeholder="Filter methods and guides  /" aria-label="Filter methods and guides"><output></output></div>
${apis
  .flatMap(({ groups }) => groups)
  .map(
    ({ name, members }) => `<div data-group>
<h2>${escapeHtml(name)}</h2>
${members
  .map(
    ({ method, operation: { operationId } }) =>
      `<a href="#${operationId}">${shortName(operationId)} <i class="${method}">${method}</i></a>`,
  )
  .join('\n')}
</div>`,
  )
  .join('\n')}
<div data-group><h2>Guides</h2>
${guides.map(({ href, title, words }) => `<a href="${href}" data-words="${escapeHtml(words)}" hidden>${escapeHtml(title)}</a>`).join('\n')}
<p id="more" hidden><a href="/docs">Search all pages</a></p>
</div>`,
    main: `<h1>Tollgate API</h1>
<div class="prose">
${document.info.description.split('\n\n').map(paragraph).join('\n')}
<p>Base URL: <code>${escapeHtml(base)}</code>. For programs, as OpenAPI 3.1: <a href="/openapi.json">openapi.json</a>.</p>
${sendable === null ? '' : '<p id="sending" hidden>Sign in to the <a href="/dashboard">dashboard</a> to send the methods of v1 from this page.</p>'}
</div>
${apis
  .map(
    ({ name, description, groups }) => `<div data-group>
<h2 class="api" id="${escapeHtml(name)}"><a href="#${escapeHtml(name)}">${escapeHtml(name)}</a></h2>
<div class="prose">
${description.split('\n\n').map(paragraph).join('\n')}
</div>
${groups.map((group) => groupOf(group, { base, sendable })).join('\n')}
</div>`,
  )
  .join('\n')}`,
  })
}

type Group = { name: string; description: string; members: Omit<Shown, keyof Where>[] }

function groupOf({ name, description, members }: Group, where: Where): string {
  const id = idOf(name)
  return `<div data-group>
<h3 class="tag" id="${id}"><a href="#${id}">${escapeHtml(name)}</a></h3>
${paragraph(description)}
${members.map(({ path, method, operation }) => section({ path, method, operation, ...where })).join('\n')}
</div>`
}

/** `v2-keys` of the tag `v2 keys`. */
const idOf = (tag: string) => escapeHtml(tag.replaceAll(' ', '-'))

type Where = { base: string; sendable: { has(name: string): boolean } | null }
type Shown = Where & { path: string; method: string; operation: Operation }

function section({ path, method, operation, base, sendable }: Shown): string {
  const { operationId, summary, description = '', parameters = [], requestBody, responses } = operation
  const fields: Field[] =
    requestBody === undefined
      ? parameters.map(({ name, required, description, deprecated, schema }) => ({
          name,
          isRequired: required,
          depth: 0,
          schema: { ...schema, description, deprecated: deprecated === true },
        }))
      : fieldsOf(requestBody.content['application/json'].schema)
  const [status = '200', success] = Object.entries(responses)[0] ?? []
  const reply = success?.content['application/json']
  const codes = Object.values(responses).flatMap(({ content }) =>
    Object.keys(content['application/json'].examples ?? {}),
  )
  const synonyms = SYNONYMS.flatMap(({ of, words }) => (of.test(operationId) ? [words] : []))
  const texts = [...synonyms, operationId, summary, description, ...fields.flatMap(wordsOf), ...codes].join(
    ' ',
  )
  const words = [...new Set([path, ...texts.split(/[^\w.]+/)])].join(' ').toLowerCase()
  return `<section class="method" id="${operationId}" data-words="${escapeHtml(words)}"${sentFrom(path, operation, sendable)}>
<header>
<h4 class="summary"><a href="#${operationId}">${escapeHtml(summary)}</a></h4>
<p class="path"><b class="${method}">${method}</b><code>${path}</code></p>
<p class="facts">${inline(description)}</p>
</header>
<div class="halves">
<div>
<h4>${requestBody === undefined ? 'Query' : `Body${listMark(requestBody?.content['application/json'].schema)}`}</h4>
${fieldList(fields, 'request')}
<h4>Response${listMark(reply?.schema)}</h4>
${fieldList(reply === undefined ? [] : fieldsOf(reply.schema), 'answer')}
<details>
<summary>Errors</summary>
<ul class="errors">${Object.entries(responses)
    .flatMap(([errorStatus, { content }]) =>
      Object.entries(content['application/json'].examples ?? {}).map(
        ([code, { summary: about }]) =>
          `<li><b>${errorStatus}</b> <a href="/errors/${code}">${code}</a><br>${escapeHtml(about)}</li>`,
      ),
    )
    .join('\n')}</ul>
</details>
</div>
<div class="examples">
<h4>Request</h4>
<pre><code>${escapeHtml(curlOf({ path, operation, base }))}</code></pre>
<h4>Response ${status}</h4>
<pre><code>${escapeHtml(JSON.stringify(reply?.example, null, 2))}</code></pre>
</div>
</div>
</section>`
}

/** Words that people look for and that the descriptions do not use, because the glossary has another. */
const SYNONYMS = [
  { of: /\.(delete|update)(Key|RootKey)$/, words: 'revoke disable block' },
  { of: /\.reroll/, words: 'rotate regenerate roll' },
  { of: /atelimits?\.(limit|multiLimit)$/, words: 'throttle quota check' },
  { of: /\.verifyKey$|^auth\./, words: 'check validate authenticate' },
  { of: /Remaining|Credits/, words: 'credits quota' },
  { of: /^(v2\.)?identities\./, words: 'user customer tenant organisation' },
  { of: /\.erase/, words: 'gdpr privacy personal data' },
]

const wordsOf = ({ name, schema }: Field) => [name, schema.description ?? '']

const listMark = (schema: JsonSchema | undefined) => (schema?.type === 'array' ? ', a list of' : '')

type Field = { name: string; isRequired: boolean; depth: number; schema: JsonSchema }
/** Decides which fields are marked: required ones in a request, optional ones in an answer. */
type FieldsOf = 'request' | 'answer'

/** All fields of an object, or of a list's objects. Nested fields follow their parent. */
function fieldsOf(schema: JsonSchema, depth = 0): Field[] {
  const object = objectIn(schema)
  return Object.entries(object?.properties ?? {}).flatMap(([name, property]) => [
    { name, isRequired: (object?.required ?? []).includes(name), depth, schema: property },
    ...fieldsOf(property, depth + 1),
  ])
}

/** The object that a schema describes, also as an element of a list or beside null. */
function objectIn(schema: JsonSchema): JsonSchema | undefined {
  if (schema.properties !== undefined) return schema
  if (schema.items !== undefined) return objectIn(schema.items)
  return schema.anyOf?.map(objectIn).find((option) => option !== undefined)
}

const fieldList = (fields: Field[], of: FieldsOf) =>
  fields.length === 0
    ? `<p class="empty">${of === 'request' ? 'No fields.' : 'An empty object.'}</p>`
    : `<ul class="fields">\n${fields.map((field) => item(field, of)).join('\n')}\n</ul>`

function item({ name, isRequired, depth, schema }: Field, of: FieldsOf): string {
  const marks = [
    isRequired && of === 'request' ? '<span class="must">required</span>' : '',
    !isRequired && of === 'answer' ? '<span class="old">optional</span>' : '',
    schema.deprecated === true ? '<span class="old">deprecated</span>' : '',
  ].join('')
  const type = [typeOf(schema), ...boundsOf(schema)].map(escapeHtml).join(' · ')
  return `<li${depth === 0 ? '' : ` class="d${Math.min(depth, 3)}"`}><span class="name">${escapeHtml(name)}</span><span class="type">${type}</span>${marks}${paragraph(schema.description ?? '')}</li>`
}

function typeOf(schema: JsonSchema): string {
  if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(' | ')
  if (schema.const !== undefined) return JSON.stringify(schema.const)
  if (schema.anyOf !== undefined) return schema.anyOf.map(typeOf).join(' | ')
  if (schema.type === 'array' && schema.items !== undefined) return `list of ${typeOf(schema.items)}`
  return typeof schema.type === 'string' ? schema.type : 'any JSON'
}

/** Bounds of the value, or of its type other than null. */
function boundsOf(schema: JsonSchema): string[] {
  const { minimum, exclusiveMinimum, maximum, minLength, maxLength, minItems, maxItems } = schema
  const own = [
    exclusiveMinimum === undefined ? '' : `> ${number(exclusiveMinimum)}`,
    minimum === undefined ? '' : `≥ ${number(minimum)}`,
    maximum === undefined ? '' : `≤ ${number(maximum)}`,
    rangeOf(minLength, maxLength, 'characters'),
    rangeOf(minItems, maxItems, 'items'),
    schema.default === undefined ? '' : `default ${JSON.stringify(schema.default)}`,
  ].filter((text) => text !== '')
  return own.length > 0 ? own : (schema.anyOf ?? []).flatMap(boundsOf)
}

function rangeOf(min: number | undefined, max: number | undefined, unit: string): string {
  if (min === undefined && max === undefined) return ''
  if (max === undefined) return `≥ ${min} ${unit}`
  return min === undefined || min === 0 ? `≤ ${max} ${unit}` : `${min} to ${max} ${unit}`
}

const number = (value: number) => value.toLocaleString('en').replaceAll(',', '\u202f')

/** The method's name and an input to begin with, for the page's script; empty = it cannot be sent. */
function sentFrom(
  path: string,
  { parameters = [], requestBody }: Operation,
  sendable: Where['sendable'],
): string {
  const name = path.replace(/^\/v1\//, '')
  if (sendable === null || !sendable.has(name)) return ''
  const required = parameters.filter((each) => each.required).map((each) => [each.name, ''])
  const body = requestBody?.content['application/json'].example ?? Object.fromEntries(required)
  return ` data-call="${escapeHtml(name)}" data-body="${escapeHtml(JSON.stringify(body))}"`
}

/** A command to copy, with the required fields filled in. */
function curlOf({
  path,
  operation: { security, parameters = [], requestBody },
  base,
}: Pick<Shown, 'path' | 'operation' | 'base'>): string {
  const query = parameters.filter(({ required }) => required).map(({ name }) => `${name}=…`)
  const url = `${base}${path}${query.length === 0 ? '' : `?${query.join('&')}`}`
  const lines = [`curl ${query.length > 0 ? `'${url}'` : url}`]
  if (security.length > 0)
    lines.push(`-H "Authorization: Bearer ${security.some((one) => 'key' in one) ? '$KEY' : '$ROOT_KEY'}"`)
  if (requestBody !== undefined) {
    lines.push("-H 'Content-Type: application/json'")
    const { example } = requestBody.content['application/json']
    const short = JSON.stringify(example)
    lines.push(
      `-d '${short.length > 50 ? JSON.stringify(example, null, 2).replaceAll('\n', '\n  ') : short}'`,
    )
  }
  return lines.join(' \\\n  ')
}

const shortName = (operationId: string) => escapeHtml(operationId.split('.').at(-1) ?? operationId)

const paragraph = (text: string) => (text === '' ? '' : `<p>${inline(text)}</p>`)

/** Code between backticks is the only markup in descriptions. */
const inline = (text: string) => escapeHtml(text).replace(/`([^`]+)`/g, '<code>$1</code>')

const escapeHtml = (text: string) => Bun.escapeHTML(text)
