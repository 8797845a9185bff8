using System.CommandLine;

namespace KvCluster.Cli.Commands;

/// <summary>`kv completion` prints a script that makes a shell complete commands of `kv`, and `kv complete` is what such a script calls.</summary>
internal static class CompletionCommands
{
    /// <summary>The name of the command that scripts call.</summary>
    public const string CompleteName = "complete";

    // bash divides words also at "=", and completes file names where nothing else is known.
    private const string Bash =
        """
        # Completion of kv in bash: source <(kv completion bash)
        _kv() {
            local word
            COMPREPLY=()
            while IFS= read -r word; do
                COMPREPLY+=("$word")
            done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
        }
        complete -o default -F _kv kv
        """;

    private const string Zsh =
        """
        #compdef kv
        # Completion of kv in zsh, after compinit: source <(kv completion zsh)
        _kv() {
            local -a found
            found=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
            if [[ -n "${found[1]}" ]]; then
                compadd -- "${found[@]}"
            else
                _files
            fi
        }
        compdef _kv kv
        """;

    private const string Fish =
        """
        # Completion of kv in fish: kv completion fish | source
        function __kv_complete
            set -l words (commandline -opc) (commandline -ct)
            $words[1] complete -- $words[2..-1] 2>/dev/null
        end
        complete -c kv -a '(__kv_complete)'
        """;

    public static Command Completion()
    {
        var shell = new Argument<string>("SHELL") { Description = "bash, zsh or fish." };
        shell.AcceptOnlyFromAmong("bash", "zsh", "fish");
        return CliCommand.CreateReader(
            "completion", "Print a script that makes a shell complete commands, options and their values. In bash: source <(kv completion bash)", [shell],
            (arguments, output, _) =>
            {
                output.Lines(arguments.GetRequiredValue(shell) switch
                {
                    "bash" => Bash,
                    "zsh" => Zsh,
                    _ => Fish,
                });
                return Task.FromResult(ExitCodes.Done);
            });
    }

    public static Command Complete()
    {
        var words =
            new Argument<string[]>("WORD") { Description = "The command line behind kv, up to the word that is completed.", Arity = ArgumentArity.ZeroOrMore };
        var command = CliCommand.CreateReader(
            CompleteName, "Print what may stand for the last word of a command line, for the scripts of completion.", [words], (arguments, output, _) =>
            {
                foreach (var word in Completions.Of(arguments.GetValue(words) ?? []))
                    output.Line(word);
                return Task.FromResult(ExitCodes.Done);
            });
        command.Hidden = true;
        return command;
    }
}
