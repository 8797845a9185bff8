// kv: the command line client.
using KvCluster.Cli;

return ArgumentBytes.FirstWrong(args) is { } wrong
    ? CommandRun.Refuse($"'{wrong}' is not UTF-8, as keys and values on the command line must be. Give other keys by --key-hex or --key-base64, "
        + "and other values as @FILE.")
    : await CommandRun.RunAsync(args);
