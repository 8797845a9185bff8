using System.CommandLine;
using System.Text.RegularExpressions;

namespace KvCluster.Cli.Commands;

/// <summary>`kv context`: names for clusters, so that a command need not say how they are reached.</summary>
internal static partial class ContextCommands
{
    private static readonly Option<bool> UseIt = new("--use") { Description = "Use it where no context is named, as the first one is in any case." };
    private static readonly Option<bool> None = new("--none") { Description = "Use no context where none is named." };

    public static Command Create() => new("context", "Commands for names of clusters.") { Add(), Use(), List(), Remove() };

    private static Command Add()
    {
        var name = new Argument<string>("NAME") { Description = "Letters, digits, dots, dashes and underscores." };
        return CliCommand.Create(
            "add", "Give a name to a cluster, with its --endpoint, --gateway and options of TLS. Another one of that name is replaced.", [name, UseIt],
            (arguments, output, _) =>
            {
                var given = arguments.GetRequiredValue(name);
                if (!Name().IsMatch(given))
                    throw new CliException(ExitCodes.Usage, $"'{given}' is not a name: letters, digits, dots, dashes and underscores.");
                if (!Globals.IsGiven(arguments, Globals.Endpoint))
                    throw new CliException(ExitCodes.Usage, "context add requires --endpoint.");
                var file = ContextFile.Read();
                file.Add(given, ContextOf(Connection.Of(arguments)), arguments.GetValue(UseIt));
                return Tell(output, file, file.Current == given ? $"{given} is used where no context is named" : $"{given} was added");
            });
    }

    private static Command Use()
    {
        var name = ExistingName();
        name.Arity = ArgumentArity.ZeroOrOne;
        return CliCommand.Create("use", "Say which context is used where none is named.", [name, None], (arguments, output, _) =>
        {
            var given = arguments.GetValue(name);
            if ((given is null) != arguments.GetValue(None))
                throw new CliException(ExitCodes.Usage, "context use takes either a NAME or --none.");
            var file = ContextFile.Read();
            file.Use(given);
            return Tell(output, file, given is null ? "no context is used where none is named" : $"{given} is used where no context is named");
        });
    }

    private static Command List() => CliCommand.CreateReader(
        "list", "Print the contexts, one per line: * if it is used where none is named, name, addresses.", [], (_, output, _) =>
        {
            var file = ContextFile.Read();
            if (output.IsJson)
                output.Document(DocumentOf(file));
            else
                foreach (var (name, context) in file.Contexts)
                    output.Bytes(Text.ToBytes($"{(name == file.Current ? "*" : "")}\t{name}\t{string.Join(',', context.Endpoints)}\n").Span);
            return Task.FromResult(ExitCodes.Done);
        });

    private static Command Remove()
    {
        var name = ExistingName();
        return CliCommand.Create("remove", "Remove a context.", [name], (arguments, output, _) =>
        {
            var file = ContextFile.Read();
            file.Remove(arguments.GetValue(name)!);
            return Tell(output, file, $"{arguments.GetValue(name)} was removed");
        });
    }

    private static Argument<string?> ExistingName()
    {
        var name = new Argument<string?>("NAME") { Description = "The context." };
        name.CompletionSources.Add(static _ => ContextFile.NamesIfReadable());
        return name;
    }

    private static Task<int> Tell(Output output, ContextFile file, string what)
    {
        if (output.IsJson)
            output.Document(DocumentOf(file));
        else
            output.Line(what);
        return Task.FromResult(ExitCodes.Done);
    }

    private static Fields DocumentOf(ContextFile file) => new Fields
    {
        { "current", file.Current },
        { "contexts", file.Contexts.Select(static one => new Fields
        {
            { "name", one.Key },
            { "endpoints", one.Value.Endpoints },
            { "gateway", one.Value.Gateway },
            { "tls_ca", one.Value.TlsCa },
            { "tls_cert", one.Value.TlsCert },
            { "tls_key", one.Value.TlsKey },
            { "tls_server_name", one.Value.TlsServerName },
        }) },
    };

    // The command that uses a context may run in another directory.
    private static ClusterContext ContextOf(Connection connection) => new(connection.Endpoints)
    {
        Gateway = connection.Gateway,
        TlsCa = PathOf(connection.Tls.AuthorityFile),
        TlsCert = PathOf(connection.Tls.CertificateFile),
        TlsKey = PathOf(connection.Tls.KeyFile),
        TlsServerName = connection.Tls.ServerName,
    };

    private static string? PathOf(string? file) => file is null ? null : Path.GetFullPath(file);

    [GeneratedRegex("^[A-Za-z0-9._-]+$")]
    private static partial Regex Name();
}
