import type { ComponentChildren } from 'preact'
import { useEffect, useId, useState } from 'preact/hooks'
import type { Loaded } from '../data.ts'
import { seconds } from '../format.ts'
import { Failure } from './controls.tsx'
import { Icon } from './icons.tsx'

/** A part of a screen with its own data: loading, there, refused, failed, or stale. */
export function Panel<T>({
  title,
  loaded,
  actions,
  isWide = false,
  children,
}: {
  title: string
  loaded: Loaded<T>
  actions?: ComponentChildren
  isWide?: boolean
  children: (data: T) => ComponentChildren
}) {
  const id = useId()
  const { data, failed, at, reload } = loaded
  const isRefused = failed?.code === 'INSUFFICIENT_PERMISSIONS'
  return (
    <section class={isWide ? 'panel wide' : 'panel'} aria-labelledby={id}>
      <header>
        <h2 id={id}>{title}</h2>
        {data !== null && failed !== null && (
          <p class="stale" role="status">
            <Icon name="warning" /> as of {seconds(at)}
          </p>
        )}
        {actions}
      </header>
      {data !== null ? (
        children(data)
      ) : failed === null ? (
        <Loading />
      ) : isRefused ? (
        <p class="empty">Not shown: {failed.message}.</p>
      ) : failed.code === 'NOT_FOUND' ? (
        <p class="empty">It does not exist, or is deleted: {failed.message}.</p>
      ) : (
        <Failure failed={failed} onRetry={reload} />
      )}
    </section>
  )
}

/** Appears only when it takes long enough to be noticed. */
export function Loading() {
  const [isLong, setLong] = useState(false)
  useEffect(() => {
    const timer = setTimeout(() => setLong(true), 200)
    return () => clearTimeout(timer)
  }, [])
  return (
    <p class="empty" role="status">
      {isLong ? 'Loading…' : '\u00a0'}
    </p>
  )
}
