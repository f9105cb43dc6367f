# SPDX-License-Identifier: MIT
# bash completion for cachealloc(1)

_cachealloc() {
	local cur prev verb options i
	cur=${COMP_WORDS[COMP_CWORD]}
	prev=${COMP_WORDS[COMP_CWORD - 1]}
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W "run compare doctor replay tune explain version help --help --version" -- "$cur")
		return
	fi
	verb=${COMP_WORDS[1]}
	case $verb in
	run) options="--conf --limit --stats --stats-interval --trace --take-over --log --log-file --disable --strict --sim --library --dry-run --help" ;;
	compare) options="--runs --warmup --conf-a --conf-b --json --force --ignore-failure --seed --fail-above --sim --library --help" ;;
	replay) options="--conf --memory --lag --find-min-capacity --to-refusal --time --json --help" ;;
	tune) options="--lag --conf --jobs --json --help" ;;
	explain) options="--memory --device --lag --jobs --json --help" ;;
	doctor | version) options="--json --library --help" ;;
	help) options="run compare doctor replay tune explain version" ;;
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
	--library | --log-file | --trace | --json)
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
		--conf | --limit | --memory | --lag | --jobs | -j | --device | --stats-interval | --take-over | --trace | --log | --log-file | --library | -r | --runs | --warmup | --conf-a | --conf-b | --seed | --fail-above)
			i=$((i + 1))
			;;
		--json) [[ $verb == compare ]] && i=$((i + 1)) ;;
		-*) ;;
		*) break ;;
		esac
	done
	if ((i < COMP_CWORD)) && declare -F _command_offset >/dev/null && [[ $verb == run || $verb == compare ]]; then
		_command_offset "$i"
	elif [[ $cur == -* || $verb == help ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
	elif [[ $verb == replay || $verb == tune || $verb == explain ]]; then
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	elif [[ $verb != version ]]; then
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	fi
}

complete -o default -F _cachealloc cachealloc
