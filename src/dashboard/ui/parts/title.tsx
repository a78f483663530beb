import { useEffect } from 'preact/hooks'

/** The heading of a screen, which gets the focus after navigation, and the title of the tab. */
export function useTitle(text: string, tab = text) {
  useEffect(() => {
    document.title = `${tab} · Tollgate`
  }, [tab])
  return <h1 tabIndex={-1}>{text}</h1>
}
