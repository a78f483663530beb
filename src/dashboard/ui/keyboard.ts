import { effect, signal } from '@preact/signals'
import { useEffect, useRef } from 'preact/hooks'

/** WCAG 2.1.4: single keys can be switched off. */
export const shortcutsOn = signal(read())

effect(() => {
  const isOn = shortcutsOn.value
  try {
    if (isOn) localStorage.removeItem('shortcuts')
    else localStorage.setItem('shortcuts', 'off')
  } catch {
    // without storage it lasts until the page is loaded again
  }
})

function read(): boolean {
  try {
    return localStorage.getItem('shortcuts') !== 'off'
  } catch {
    return true
  }
}

/** Runs an action for a key, or for two keys one after the other: `?`, `g o`. */
export function useShortcuts(actions: Readonly<Record<string, () => void>>): void {
  const latest = useRef(actions)
  latest.current = actions
  useEffect(() => {
    let before = ''
    const press = (event: KeyboardEvent) => {
      if (!shortcutsOn.value || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented)
        return
      if (event.target instanceof Element && event.target.closest('input, textarea, select, dialog') !== null)
        return
      const run = latest.current[`${before} ${event.key}`.trim()] ?? latest.current[event.key]
      before = run === undefined && event.key === 'g' ? 'g' : ''
      if (run === undefined) return
      event.preventDefault()
      run()
    }
    addEventListener('keydown', press)
    return () => removeEventListener('keydown', press)
  }, [])
}
