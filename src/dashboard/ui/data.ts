import { useEffect, useRef, useState } from 'preact/hooks'
import { CallFailed } from './api.ts'

export type Loaded<T> = {
  /** The latest answer; null = there was none yet. */
  data: T | null
  /** Why the latest attempt failed; null = it did not. */
  failed: CallFailed | null
  /** When `data` came, Unix ms. */
  at: number
  reload(): void
}

/**
 * Loads data when `key` changes, and again every `everyMs` while the page is visible. What came stays while it is loaded
 * again, and when that fails.
 * @param load Gets a signal that is aborted when its answer is no longer wanted.
 */
export function useData<T>(
  key: string,
  load: (options: { signal: AbortSignal; isRefresh: boolean }) => Promise<T>,
  { everyMs = null }: { everyMs?: number | null } = {},
): Loaded<T> {
  const [state, setState] = useState<{ key: string; data: T | null; failed: CallFailed | null; at: number }>({
    key,
    data: null,
    failed: null,
    at: 0,
  })
  const [count, setCount] = useState(0)
  const latest = useRef(load)
  latest.current = load
  useEffect(() => {
    const stopping = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const round = async (isRefresh: boolean): Promise<void> => {
      if (!isRefresh || document.visibilityState === 'visible') {
        try {
          const data = await latest.current({ signal: stopping.signal, isRefresh })
          if (stopping.signal.aborted) return
          setState({ key, data, failed: null, at: Date.now() })
        } catch (cause) {
          if (stopping.signal.aborted) return
          if (!(cause instanceof CallFailed)) throw cause
          setState((before) => ({
            ...before,
            key,
            data: before.key === key ? before.data : null,
            failed: cause,
          }))
        }
      }
      if (everyMs !== null) timer = setTimeout(() => void round(true), everyMs)
    }
    void round(false)
    return () => {
      stopping.abort()
      clearTimeout(timer)
    }
  }, [key, count, everyMs])
  const isOwn = state.key === key
  return {
    data: isOwn ? state.data : null,
    failed: isOwn ? state.failed : null,
    at: state.at,
    reload: () => setCount((before) => before + 1),
  }
}
