# SPDX-License-Identifier: MIT
# fish completion for cachealloc(1)

complete -c cachealloc -n __fish_use_subcommand -f -a run -d 'run a program on the caching allocator'
complete -c cachealloc -n __fish_use_subcommand -f -a compare -d 'measure a program with and without it'
complete -c cachealloc -n __fish_use_subcommand -f -a doctor -d 'tell whether the hooks will bind'
complete -c cachealloc -n __fish_use_subcommand -f -a version -d 'versions of command and library'
complete -c cachealloc -n __fish_use_subcommand -f -a help -d 'help on a verb'

set -l run '__fish_seen_subcommand_from run'
complete -c cachealloc -n $run -l conf -x -d 'tuning keys'
complete -c cachealloc -n $run -l stats -d 'statistics at exit'
complete -c cachealloc -n $run -l stats-interval -x -d 'repeat them'
complete -c cachealloc -n $run -l log -x -a 'off error warn info debug' -d 'log level'
complete -c cachealloc -n $run -l log-file -r -d 'log lines go there'
complete -c cachealloc -n $run -l disable -d 'pass calls through'
complete -c cachealloc -n $run -l strict -d 'bad settings are fatal'
complete -c cachealloc -n $run -s n -l dry-run -d 'print, run nothing'

set -l compare '__fish_seen_subcommand_from compare'
complete -c cachealloc -n $compare -s r -l runs -x -d 'pairs to measure'
complete -c cachealloc -n $compare -l warmup -x -d 'pairs to run first'
complete -c cachealloc -n $compare -l conf-a -x -d 'keys of A'
complete -c cachealloc -n $compare -l conf-b -x -d 'keys of B'
complete -c cachealloc -n $compare -l json -r -d 'result file'
complete -c cachealloc -n $compare -l force -d 'overwrite the file'
complete -c cachealloc -n $compare -l ignore-failure -d 'go on when the program fails'
complete -c cachealloc -n $compare -l seed -x -d 'seed'
complete -c cachealloc -n $compare -l fail-above -x -d 'limit in percent'

complete -c cachealloc -n '__fish_seen_subcommand_from run compare' -l sim -d 'on the simulated driver'
complete -c cachealloc -n '__fish_seen_subcommand_from doctor version' -l json -d 'as JSON'
complete -c cachealloc -n '__fish_seen_subcommand_from run compare doctor version' -l library -r -d 'libcachealloc.so'
complete -c cachealloc -n '__fish_seen_subcommand_from run compare doctor version' -s h -l help -d 'help'
