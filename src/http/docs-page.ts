import type { JsonSchema, OpenApiDocument, Operation } from './openapi.ts'

/*
 * The description as a page to read, made on the server without a script. Refused: Scalar's viewer (1.72.1), which
 * installs 268 packages (278 MB) and sends 4 MB of script for the sake of one page. What it would add is calling the API
 * from the page; the `curl` line under each method does that as well.
 */

/** @param document What `/openapi.json` answers: the page says nothing else. */
export function docsPage(document: OpenApiDocument): string {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
  )
  const base = document.servers[0]?.url ?? ''
  const groups = document.tags.map((tag) => ({
    ...tag,
    members: operations.filter(({ operation }) => operation.tags.includes(tag.name)),
  }))
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Tollgate API ${escapeHtml(document.info.version)}</title>
<style>${STYLE}</style>
</head>
<body>
<nav aria-label="Methods">
<a class="home" href="#top">Tollgate</a>
${groups
  .map(
    ({ name, members }) =>
      `<h2>${escapeHtml(name)}</h2>\n${members
        .map(({ operation: { operationId } }) => `<a href="#${operationId}">${shortName(operationId)}</a>`)
        .join('\n')}`,
  )
  .join('\n')}
</nav>
<main id="top">
<h1>Tollgate API <small>${escapeHtml(document.info.version)}</small></h1>
${document.info.description.split('\n\n').map(paragraph).join('\n')}
<p>Base URL: <code>${escapeHtml(base)}</code> · <a href="/openapi.json">openapi.json</a></p>
${groups
  .map(
    ({ name, description, members }) => `<h2 class="tag">${escapeHtml(name)}</h2>
${paragraph(description)}
${members.map(({ path, method, operation }) => section({ path, method, operation, base })).join('\n')}`,
  )
  .join('\n')}
</main>
</body>
</html>
`
}

type Shown = { path: string; method: string; operation: Operation; base: string }

function section({ path, method, operation, base }: Shown): string {
  const { operationId, summary, security, parameters = [], requestBody, responses } = operation
  const isPublic = security.length === 0
  const introduced = operation['x-introduced']
  const facts = [
    isPublic ? 'No root key needed.' : 'Needs a root key.',
    introduced === undefined ? '' : `Introduced ${introduced}.`,
  ]
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
  const reply = success === undefined ? [] : fieldsOf(success.content['application/json'].schema)
  return `<section id="${operationId}">
<h3><a href="#${operationId}">${escapeHtml(summary)}</a></h3>
<p class="path"><b>${method}</b> <code>${path}</code></p>
<p class="facts">${facts.join(' ')}</p>
<pre><code>${escapeHtml(curlOf({ path, method, operation, base }))}</code></pre>
<h4>${method === 'GET' ? 'Query' : `Body${listMark(requestBody?.content['application/json'].schema)}`}</h4>
${fields.length === 0 ? '<p>Nothing.</p>' : table(fields)}
<h4>Answer ${status}${listMark(success?.content['application/json'].schema)}</h4>
${reply.length === 0 ? '<p>An empty object.</p>' : table(reply)}
<h4>Errors</h4>
<ul class="errors">${Object.entries(responses)
    .flatMap(([errorStatus, { content }]) =>
      Object.entries(content['application/json'].examples ?? {}).map(
        ([code, { summary: about }]) =>
          `<li title="${escapeHtml(about)}"><span>${errorStatus}</span> <a href="/errors/${code}">${code}</a></li>`,
      ),
    )
    .join('')}</ul>
</section>`
}

const listMark = (schema: JsonSchema | undefined) => (schema?.type === 'array' ? ', a list of' : '')

type Field = { name: string; isRequired: boolean; depth: number; schema: JsonSchema }

/** All fields of an object, or of the objects of a list, those inside others right after them. */
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

const table = (fields: Field[]) => `<table>
${fields.map(row).join('\n')}
</table>`

function row({ name, isRequired, depth, schema }: Field): string {
  const marks = [
    isRequired ? '<em>required</em>' : '',
    schema.deprecated === true ? '<em class="old">deprecated</em>' : '',
  ].join(' ')
  const bounds = boundsOf(schema).map(escapeHtml).join(' · ')
  return `<tr><td style="--depth:${depth}"><code>${escapeHtml(name)}</code> ${marks}</td><td><span class="type">${escapeHtml(typeOf(schema))}${bounds === '' ? '' : ` · ${bounds}`}</span>${paragraph(schema.description ?? '')}</td></tr>`
}

function typeOf(schema: JsonSchema): string {
  if (schema.enum !== undefined) return schema.enum.map((value) => JSON.stringify(value)).join(' | ')
  if (schema.const !== undefined) return JSON.stringify(schema.const)
  if (schema.anyOf !== undefined) return schema.anyOf.map(typeOf).join(' | ')
  if (schema.type === 'array' && schema.items !== undefined) return `list of ${typeOf(schema.items)}`
  return typeof schema.type === 'string' ? schema.type : 'any JSON'
}

/** Of the value itself, or of what it is when not null. */
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

/** A call to copy, with the required fields filled in. */
function curlOf({
  path,
  method,
  operation: { security, parameters = [], requestBody },
  base,
}: Shown): string {
  const query = parameters.filter(({ required }) => required).map(({ name }) => `${name}=…`)
  const url = `${base}${path}${query.length === 0 ? '' : `?${query.join('&')}`}`
  const lines = [`curl ${method === 'GET' && query.length > 0 ? `'${url}'` : url}`]
  if (security.length > 0) lines.push(`-H "Authorization: Bearer $ROOT_KEY"`)
  if (requestBody !== undefined) {
    lines.push("-H 'Content-Type: application/json'")
    lines.push(`-d '${JSON.stringify(requestBody.content['application/json'].example)}'`)
  }
  return lines.join(' \\\n  ')
}

const shortName = (operationId: string) => escapeHtml(operationId.split('.').at(-1) ?? operationId)

/** Code between backticks is all the markup that descriptions use. */
const paragraph = (text: string) =>
  text === '' ? '' : `<p>${escapeHtml(text).replace(/`([^`]+)`/g, '<code>$1</code>')}</p>`

const escapeHtml = (text: string) => Bun.escapeHTML(text)

const STYLE = `
:root { color-scheme: light dark; font: 16px/1.55 system-ui, sans-serif; --line: #8883; --soft: #8881; scroll-padding-top: 1rem }
body { margin: 0; display: grid; grid-template-columns: 16rem minmax(0, 1fr) }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; box-sizing: border-box; padding: 1.5rem; border-right: 1px solid var(--line); font-size: .875rem }
nav a { display: block; padding: .1rem 0; text-decoration: none }
nav a:hover { text-decoration: underline }
nav h2 { font: 600 .75rem/1 system-ui, sans-serif; text-transform: none; opacity: .65; margin: 1.25rem 0 .35rem }
nav .home { font-weight: 700; font-size: 1rem }
main { max-width: 54rem; padding: 1.5rem clamp(1rem, 4vw, 4rem) 6rem }
a { color: inherit }
h1 { font-size: 1.75rem; margin: .5rem 0 1rem } h1 small { font-weight: 400; opacity: .6 }
h2.tag { margin: 4rem 0 0; padding-top: 1rem; border-top: 2px solid var(--line) }
h3 { margin: 0; font-size: 1.15rem } h3 a { text-decoration: none }
h4 { margin: 1.25rem 0 .25rem; font-size: .875rem; opacity: .75 }
p { margin: .35rem 0 }
section { margin-top: 2.5rem }
code, pre { font: .875em/1.5 ui-monospace, SFMono-Regular, Menlo, monospace }
.path { font-size: 1.05rem } .path b { font: 600 .8rem ui-monospace, monospace; padding: .1rem .4rem; border: 1px solid var(--line); border-radius: .25rem }
.facts, .type { opacity: .75; font-size: .875rem }
pre { background: var(--soft); border-radius: .4rem; padding: .75rem 1rem; overflow-x: auto }
table { width: 100%; border-collapse: collapse; font-size: .925rem }
td { border-top: 1px solid var(--line); padding: .45rem .5rem .45rem 0; vertical-align: top }
td:first-child { width: 38%; padding-left: calc(var(--depth) * 1.25rem); overflow-wrap: anywhere } td p { margin: .1rem 0 0 }
em { font-style: normal; font-size: .75rem; opacity: .8 } em.old { text-decoration: line-through }
.errors { list-style: none; padding: 0; margin: .25rem 0; font-size: .875rem; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem }
.errors span { opacity: .65 } .errors a { font-family: ui-monospace, monospace; font-size: .8rem }
@media (max-width: 50rem) { body { display: block } nav { position: static; height: auto; max-height: 40vh; border-right: 0; border-bottom: 1px solid var(--line) } td { display: block } td:first-child { width: auto; border-top: 1px solid var(--line); padding-bottom: 0 } td + td { border: 0; padding-left: 1.25rem } }
`
