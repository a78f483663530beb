import type { AnySql } from '../db/connect.ts'
import { newTraceHex } from '../observe/trace-context.ts'
import { SPAN_KIND, type Trace, type Tracer } from '../observe/tracing/tracer.ts'
import type { Deps } from './deps.ts'

/**
 * The services for one traced request. Whatever the request waits for becomes a span below the request's span; calls that
 * return at once leave none. Statements are recorded without their parameters.
 */
export function watchedDeps(deps: Deps, trace: Trace, tracer: Tracer): Deps {
  const { limiter, keys, namespaces, credits, database } = deps
  const wait = <T>(name: string, run: (spanId: string) => T): T => {
    const spanId = newTraceHex(16)
    const startedAt = performance.now()
    const result = run(spanId)
    if (!(result instanceof Promise)) return result
    const end = (isError: boolean) =>
      tracer.end({
        trace,
        spanId,
        parentId: trace.spanId,
        name,
        kind: SPAN_KIND.internal,
        startedAt,
        attributes: {},
        isError,
      })
    result.then(
      () => end(false),
      () => end(true),
    )
    return result
  }
  const sql = (within: AnySql, parentId: string) => watchedSql(within, { trace, parentId, tracer })
  const read = sql(deps.sql, trace.spanId)
  return {
    ...deps,
    sql: read,
    history: sql(deps.history, trace.spanId),
    limiter: over(limiter, {
      submit: (call) => {
        const pending = limiter.submit(call)
        void wait('limiter.take', () => pending.decided())
        return pending
      },
      submitAll: (calls) => wait('limiter.take', () => limiter.submitAll(calls)),
      chargeTogether: (calls) => wait('limiter.take', () => limiter.chargeTogether(calls)),
      chargeLater: (call) => limiter.chargeLater(call),
    }),
    keys: over(keys, {
      find: (key, asking) => wait('keys.find', () => keys.find(key, asking)),
      findByHash: (hash, asking) => wait('keys.find', () => keys.findByHash(hash, asking)),
      findRoot: (authorization, asking) => wait('keys.find', () => keys.findRoot(authorization, asking)),
    }),
    namespaces: over(namespaces, {
      find: (workspaceId, name) => wait('namespaces.find', () => namespaces.find(workspaceId, name)),
      findByIdOrName: (workspaceId, text) =>
        wait('namespaces.find', () => namespaces.findByIdOrName(workspaceId, text)),
    }),
    credits: over(credits, { spend: (id, cost) => wait('credits.spend', () => credits.spend(id, cost)) }),
    database: over(database, {
      sql: read,
      write: (work, options) =>
        wait('database.write', (spanId) =>
          database.write((tx, invalidate) => work(sql(tx, spanId), invalidate), options),
        ),
    }),
  }
}

/** The object with some of its methods replaced. */
function over<T extends object>(target: T, replaced: Partial<T>): T {
  return new Proxy(target, {
    get: (_, name) => {
      if (Object.hasOwn(replaced, name)) return Reflect.get(replaced, name)
      const value: unknown = Reflect.get(target, name)
      // Methods use private fields, so `this` must be the object itself.
      return typeof value === 'function' ? value.bind(target) : value
    },
  })
}

type Place = { trace: Trace; parentId: string; tracer: Tracer }

/** A driver's query runs when its result is awaited, so its span begins there. */
function watchedSql(sql: AnySql, place: Place): AnySql {
  return new Proxy(sql, {
    apply: (_, self, args) => {
      const query: unknown = Reflect.apply(sql, self, args)
      const [strings] = args
      // Fragments are never awaited, and identifiers are no promises.
      return query instanceof Promise && isTemplate(strings) ? watchedQuery(query, strings, place) : query
    },
  })
}

function watchedQuery(
  query: Promise<unknown>,
  strings: TemplateStringsArray,
  { trace, parentId, tracer }: Place,
): Promise<unknown> {
  const run = query.then.bind(query)
  const watched = () => {
    const startedAt = performance.now()
    const { text, operation } = statementOf(strings)
    const result = run((value: unknown) => value)
    const end = (isError: boolean) =>
      tracer.end({
        trace,
        spanId: newTraceHex(16),
        parentId,
        name: operation,
        kind: SPAN_KIND.client,
        startedAt,
        attributes: { 'db.system.name': 'postgresql', 'db.operation.name': operation, 'db.query.text': text },
        isError,
      })
    result.then(
      () => end(false),
      () => end(true),
    )
    return result
  }
  return Object.assign(query, {
    // biome-ignore lint/suspicious/noThenProperty: the driver's query is a promise that runs when asked; this asks for it
    then: ((resolve, reject) => watched().then(resolve, reject)) satisfies typeof query.then,
    catch: ((reject) => watched().catch(reject)) satisfies typeof query.catch,
    finally: ((done) => watched().finally(done)) satisfies typeof query.finally,
  })
}

const isTemplate = (value: unknown): value is TemplateStringsArray => Array.isArray(value) && 'raw' in value

/** The statement's text on one line, with `?` for each value and fragment. */
function statementOf(strings: TemplateStringsArray): { text: string; operation: string } {
  let statement = statements.get(strings)
  if (statement === undefined) {
    const text = strings.join('?').replace(/\s+/g, ' ').trim().slice(0, STATEMENT_CHARACTERS_MAX)
    statement = { text, operation: /^\w+/.exec(text)?.[0]?.toUpperCase() ?? 'STATEMENT' }
    statements.set(strings, statement)
  }
  return statement
}

/** Each template in the source is one object, so its text is computed once. */
const statements = new WeakMap<TemplateStringsArray, { text: string; operation: string }>()
const STATEMENT_CHARACTERS_MAX = 2000
