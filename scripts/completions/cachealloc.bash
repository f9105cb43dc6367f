# SPDX-License-Identifier: MIT
# bash completion for cachealloc(1)

_cachealloc() {
	local cur prev verb options i
	cur=${COMP_WORDS[COMP_CWORD]}
	prev=${COMP_WORDS[COMP_CWORD - 1]}
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "run compare doctor replay report convert stats tune explain version help --help --version" -- "$cur")
		return
	fi
	verb=${COMP_WORDS[1]}
	case $verb in
	run) options="--conf --limit --stats --stats-interval --trace --snapshot --snapshot-on --take-over --log --log-file --disable --strict --sim --library --dry-run --help" ;;
	compare)
		options="--runs --warmup --preset --conf-a --conf-b --env-a --env-b --command-a --command-b --arm --metric --metric-lower"
		options+=" --json --export-json --export-csv --export-markdown --force --ignore-failure --seed --fail-above --sim --library --help"
		;;
	replay) options="--conf --memory --lag --find-min-capacity --to-refusal --time --json --timeline --replayed --help" ;;
	report) options="--output --svg --at --device --replayed --conf --memory --force --help" ;;
	convert) options="--to --output --device --force --help" ;;
	stats) options="--merge --watch --prometheus --json --help" ;;
	tune) options="--lag --conf --jobs --json --help" ;;
	explain) options="--memory --device --lag --jobs --json --help" ;;
	doctor) options="--run --for --sim --json --library --help" ;;
	version) options="--json --library --help" ;;
	help) options="run compare doctor replay report convert stats tune explain version" ;;
	*) return ;;
	esac
	case $prev in
	--log)
		mapfile -t COMPREPLY < <(compgen -W "off error warn info debug" -- "$cur")
		return
		;;
	--take-over)
		mapfile -t COMPREPLY < <(compgen -W "torch jax tensorflow cudf" -- "$cur")
		return
		;;
	--svg)
		mapfile -t COMPREPLY < <(compgen -W "memory map waste sizes driver" -- "$cur")
		return
		;;
	--preset)
		mapfile -t COMPREPLY < <(compgen -W "pytorch jax rmm" -- "$cur")
		return
		;;
	--snapshot-on)
		mapfile -t COMPREPLY < <(compgen -W "exit oom peak usr1 usr2" -- "$cur")
		return
		;;
	--to)
		mapfile -t COMPREPLY < <(compgen -W "memory_viz perfetto rmm csv" -- "$cur")
		return
		;;
	--library | --log-file | --trace | --snapshot | --output | -o | --timeline | --json | --export-json | --export-csv | --export-markdown)
		if [[ $verb == compare || $prev != --json ]]; then
			mapfile -t COMPREPLY < <(compgen -f -- "$cur")
			return
		fi
		;;
	esac
	# After the program's name the words are the program's own.
	for ((i = 2; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--)
			i=$((i + 1))
			break
			;;
		--conf | --limit | --memory | --lag | --jobs | -j | --device | --stats-interval | --take-over | --trace | --snapshot | --snapshot-on | --log | --log-file | --library | -r | --runs | --warmup | --preset | --conf-a | --conf-b | \
			--env-a | --env-b | --command-a | --command-b | --arm | --metric | --metric-lower | --export-json | --export-csv | \
			--export-markdown | --seed | --fail-above | --for)
			i=$((i + 1))
			;;
		--json) [[ $verb == compare ]] && i=$((i + 1)) ;;
		-*) ;;
		*) break ;;
		esac
	done
	if ((i < COMP_CWORD)) && declare -F _command_offset >/dev/null && [[ $verb == run || $verb == compare || $verb == doctor ]]; then
		_command_offset "$i"
	elif [[ $cur == -* || $verb == help ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
	elif [[ $verb == replay || $verb == report || $verb == stats || $verb == tune || $verb == explain || $verb == convert ]]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	elif [[ $verb != version ]]; then
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	fi
}

complete -o default -F _cachealloc cachealloc
