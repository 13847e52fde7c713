// How pages are written. A page that is listed here follows the style guide, and has to go on doing so.
import rules from './rules.mjs'

export default {
  config: {
    default: true,
    'commands-show-output': false, // A transcript has both.
    'line-length': false, // short-sentence counts what a reader sees.
    'no-duplicate-heading': { siblings_only: true },
    'no-inline-html': { allowed_elements: ['a', 'br', 'details', 'summary'] },
    'single-h1': { front_matter_title: '' }, // Forges show no title but the heading.
    'table-column-style': false,
  },
  customRules: rules,
  globs: [
    'docs/reference/{README,events-and-conditions,labels-and-annotations}.md', // The others have texts of the code, and of Kubernetes.
    'docs/reference/{cluster-ipam-differences,debug-json,health-messages}.md',
    'README.md', 'docs/*.md', 'docs/{install,use,operate,concepts,cluster-ipam,engineering}/**/*.md',
    // Still to be listed: CONTRIBUTING.md, SECURITY.md, docs/engineering/performance.md.
    '!docs/engineering/performance.md',
  ],
}
