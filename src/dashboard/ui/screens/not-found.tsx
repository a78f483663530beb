import { useTitle } from '../parts/title.tsx'
import { within } from '../session.ts'

export function NotFound() {
  const heading = useTitle('Not found')
  return (
    <>
      <div class="head">{heading}</div>
      <p>
        The dashboard has no such screen. Go to the <a href={within('overview')}>overview</a>.
      </p>
    </>
  )
}
