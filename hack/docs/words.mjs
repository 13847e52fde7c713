// One word for one idea: a pattern, in small letters or capitals, and what to write instead.
// To keep a word where it is right, put <!-- markdownlint-disable-next-line words --> above the line.
export const words = [
  // The controller gives a Node its podCIDRs.
  [/\bhand(?:s|ed|ing)? out\b/, 'allocate'],
  [/\bserv(?:e|es|ed|ing) (?:(?:a|an|the|this|any|no|every|each|other|new|pending) )?Nodes?\b/, 'allocate to'],
  [/\bNodes? (?:is|are|was|were) (?:not )?served\b/, 'has podCIDRs, or is pending'],
  [/\bgiv(?:e|es|en|ing) (?:(?:a|the|this|every|each|other|new) )?(?:Nodes?|blocks?|podCIDRs|address(?:es)?)\b/, 'allocate'],
  [/\bNodes? (?:that )?waits?\b(?! for)/, 'pending: "Node x is pending"'],
  // Who writes.
  [/\b(?:the one|the process|the program) (?:that|which) leads\b/, 'the leader'],
  [/\bforeigners?\b/, 'another allocator'],
  [/\bours\b/, 'the controller, this project’s program'],
  // State of the controller.
  [/\bdrain(?:ing|s|ed)? (?:a |the )?ClusterCIDRs?\b/, 'terminating, retire: only a Node is drained'],
  [/\boutsiders?\b/, 'out of range'],
  [/\bsightings?\b/, 'first seen'],
  [/\btall(?:y|ies)\b/, 'index, stats'],
  [/\bsuspects?\b/, 'recheck'],
  [/\btroubles?\b/, 'problem'],
  // Habits that make a reader read twice.
  [/\banew\b/, 'again'],
  [/\bmend(?:s|ed|ing)?\b/, 'fix'],
  [/\bpass(?:es|ed|ing)? over (?:this|it|them|that)\b/, 'ignore'],
  [/\balso if\b/, 'even if'],
  [/\bgo(?:es)? on (?:with|to)\b/, 'continue'],
  [/\bis one to\b/, 'name the thing'],
  [/\bso it is with\b/, 'the same is true of'],
  [/\bwould stand behind\b/, 'present tense: "queues behind"'],
  [/\bwhom\b/, 'name the person or the program'],
  [/\bwhat helps it\b/, 'name the thing'],
]
