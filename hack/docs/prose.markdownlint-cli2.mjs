// How pages are written: those of the folders that follow the style guide already.
import rules from './rules.mjs'

export default {
  config: {
    default: true,
    'table-column-style': false,
    'line-length': false, // short-sentence counts what a reader sees.
    'no-duplicate-heading': { siblings_only: true },
    'no-inline-html': { allowed_elements: ['a', 'br', 'details', 'summary'] },
    'single-h1': { front_matter_title: '' }, // Forges show no title but the heading.
  },
  customRules: rules,
  globs: ['README.md', 'docs/**/*.md', '!docs/engineering/performance.md'],
}
