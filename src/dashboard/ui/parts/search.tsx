import { useEffect, useRef, useState } from 'preact/hooks'
import { CallFailed } from '../api.ts'
import { useShortcuts } from '../keyboard.ts'
import { go } from '../route.ts'
import { ask, holds, holdsOnAny, within } from '../session.ts'
import { Icon } from './icons.tsx'
import { pathOfIdentifier } from './identifier-path.ts'
import { destinationOf, looksLikeKey } from './search-shape.ts'

type Hit = { to: string; kind: string; name: string; detail: string }
type Found = { hits: readonly Hit[]; said: string | null }

/**
 * The search of every page. What it is told by its shape: ids open their page; what looks like a key goes in a body to
 * keys.whoami, and the field is cleared; anything else searches. Its text is in no address.
 */
export function Search() {
  const [text, setText] = useState('')
  const [found, setFound] = useState<Found | null>(null)
  const field = useRef<HTMLInputElement>(null)
  const box = useRef<HTMLElement>(null)
  const wanted = useRef('')
  useShortcuts({ '/': () => field.current?.focus() })
  const close = () => {
    setText('')
    setFound(null)
    wanted.current = ''
  }
  const leave = (to: string) => {
    close()
    field.current?.blur()
    go(within(to))
  }
  const run = async (asked: string) => {
    wanted.current = asked
    const result = await find(asked)
    if (wanted.current !== asked) return
    if ('to' in result) leave(result.to)
    else setFound(result)
  }
  useEffect(() => {
    const trimmed = text.trim()
    // A key is not searched while it is typed, and an id is opened by Enter.
    if (trimmed.length < 2 || looksLikeKey(trimmed) || destinationOf(trimmed) !== null) {
      setFound(null)
      return
    }
    const timer = setTimeout(() => void run(trimmed), 250)
    return () => clearTimeout(timer)
  }, [text])
  useEffect(() => {
    const outside = (event: Event) => {
      if (event.target instanceof Node && box.current?.contains(event.target) !== true) setFound(null)
    }
    addEventListener('pointerdown', outside)
    addEventListener('focusin', outside)
    return () => {
      removeEventListener('pointerdown', outside)
      removeEventListener('focusin', outside)
    }
  }, [])
  const move = (by: 1 | -1) => {
    const links = [...(box.current?.querySelectorAll<HTMLElement>('.hits a') ?? [])]
    const at = links.findIndex((link) => link.matches(':focus'))
    const to = at + by
    if (to < 0) field.current?.focus()
    else links[Math.min(to, links.length - 1)]?.focus()
  }
  return (
    <search
      ref={box}
      class="search"
      onKeyDown={(event) => {
        if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
          event.preventDefault()
          move(event.key === 'ArrowDown' ? 1 : -1)
        }
        if (event.key === 'Escape') {
          if (found === null && text === '') field.current?.blur()
          else {
            close()
            field.current?.focus()
          }
        }
      }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault()
          // Of the field itself: Enter may come before what was pasted is drawn.
          const trimmed = (field.current?.value ?? '').trim()
          if (trimmed === '') return
          if (looksLikeKey(trimmed)) setText('')
          void run(trimmed)
        }}
      >
        <Icon name="search" />
        <label class="visually-hidden" for="search">
          Search
        </label>
        <input
          ref={field}
          id="search"
          type="text"
          autoComplete="off"
          spellcheck={false}
          maxLength={4096}
          placeholder="Key, id, identity, identifier"
          value={text}
          onInput={(event) => {
            // Here and not when it is drawn: a field that was cleared because it held a key still waits for its answer.
            wanted.current = ''
            setText(event.currentTarget.value)
          }}
        />
      </form>
      <div class="hits-place" role="status">
        {found !== null && (
          <div class="hits">
            {found.said !== null && <p class="secondary">{found.said}</p>}
            {found.hits.length > 0 && (
              <ul>
                {found.hits.map(({ to, kind, name, detail }) => (
                  <li key={to}>
                    <a href={within(to)} onClick={close}>
                      <span class="secondary">{kind}</span>
                      <b>{name}</b>
                      <code>{detail}</code>
                    </a>
                  </li>
                ))}
              </ul>
            )}
          </div>
        )}
      </div>
    </search>
  )
}

async function find(text: string): Promise<Found | { to: string }> {
  const to = destinationOf(text)
  if (to !== null) return { to }
  try {
    if (looksLikeKey(text)) return { to: `keys/${(await ask('keys.whoami', { key: text })).id}` }
    const [keys, apis, identities, identifiers] = await Promise.all([
      holdsOnAny('read_key') ? keysOf(text) : [],
      holdsOnAny('read_api') ? apisOf(text) : [],
      identityOf(text),
      holds('ratelimit.*.read_namespace') ? identifiersOf(text) : [],
    ])
    const hits = [...keys, ...apis, ...identities, ...identifiers]
    return { hits, said: hits.length === 0 ? 'Nothing begins with this.' : null }
  } catch (cause) {
    if (!(cause instanceof CallFailed)) throw cause
    const isUnknown = cause.code === 'NOT_FOUND' && looksLikeKey(text)
    return { hits: [], said: isUnknown ? 'No key of this workspace has this text.' : cause.message }
  }
}

const EACH = 8

/** One that is refused finds nothing; the others go on. */
async function orNone(find: () => Promise<Hit[]>): Promise<Hit[]> {
  try {
    return await find()
  } catch (cause) {
    if (cause instanceof CallFailed && ['INSUFFICIENT_PERMISSIONS', 'NOT_FOUND'].includes(cause.code))
      return []
    throw cause
  }
}

const keysOf = (text: string) =>
  orNone(async () =>
    (await ask('keys.searchKeys', { search: text.slice(0, 256), limit: EACH })).keys.map(
      ({ id, name, start, identity }) => ({
        to: `keys/${id}`,
        kind: 'Key',
        name: name ?? `${start}…`,
        detail: identity?.externalId ?? `${start}…`,
      }),
    ),
  )

const apisOf = (text: string) =>
  orNone(async () =>
    (await ask('apis.listApis', { limit: 100 })).apis
      .filter(({ name }) => name.toLowerCase().includes(text.toLowerCase()))
      .slice(0, EACH)
      .map(({ id, name }) => ({ to: `apis/${id}`, kind: 'API', name, detail: id })),
  )

const identityOf = (text: string) =>
  orNone(async () => {
    const { id, externalId } = await ask('identities.getIdentity', { externalId: text.slice(0, 256) })
    return [{ to: `identities/${id}`, kind: 'Identity', name: externalId, detail: id }]
  })

/** Those near their limit or refused, which are those that somebody asks about. Others are opened from their namespace. */
const identifiersOf = (text: string) =>
  orNone(async () =>
    (await ask('ratelimits.listNearLimit', { limit: 100 })).identifiers
      .filter(({ identifier }) => identifier.startsWith(text))
      .slice(0, EACH)
      .map(({ namespace, identifier }) => ({
        to: `limits/${encodeURIComponent(namespace.id)}/${pathOfIdentifier(identifier)}`,
        kind: 'Identifier',
        name: identifier,
        detail: namespace.name,
      })),
  )
