import { signal } from '@preact/signals'

export const THEMES = ['system', 'light', 'dark'] as const
export type Theme = (typeof THEMES)[number]

/** Shared with the documentation, which has the same switch under the same name. */
export const theme = signal<Theme>('system')

export function startTheme(): void {
  const found = stored()
  setTheme(found === 'light' || found === 'dark' ? found : 'system')
}

export function setTheme(to: Theme): void {
  theme.value = to
  if (to === 'system') delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = to
  try {
    if (to === 'system') localStorage.removeItem('theme')
    else localStorage.setItem('theme', to)
  } catch {
    // without storage it lasts until the page is loaded again
  }
}

function stored(): string | null {
  try {
    return localStorage.getItem('theme')
  } catch {
    return null
  }
}
