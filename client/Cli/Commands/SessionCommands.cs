using System.Buffers;
using System.CommandLine;
using System.Globalization;
using KvCluster.Client;

namespace KvCluster.Cli.Commands;

/// <summary>`kv session`: sessions that own keys. A key that was put with --owner ends with its session.</summary>
internal static class SessionCommands
{
    private const int SessionBytes = 16;

    private static readonly Argument<string> Key = new("KEY") { Description = "Any key of the shard of the session, such as the one that it owns." };
    private static readonly Argument<string> Session = new("SESSION") { Description = "The session, as open printed it." };
    private static readonly Option<double> Lifetime =
        Globals.SecondsOption("--lifetime", "The session ends if it is not kept alive for this long.", seconds: 10);

    public static Command Create() => new("session", "Commands for sessions that own keys.") { Open(), KeepAlive(), End() };

    /// <summary>A session that was named on the command line.</summary>
    /// <exception cref="CliException">The text is none that open printed.</exception>
    public static KvSession Parse(string option, ReadOnlyMemory<byte> key, string text)
    {
        var id = new byte[SessionBytes];
        return text.Length == 2 * SessionBytes && Convert.FromHexString(text, id, out _, out _) == OperationStatus.Done
            ? new KvSession(key, id, TimeSpan.Zero)
            : throw new CliException(ExitCodes.Usage, $"{option} '{text}' is not a session: 32 hexadecimal digits, as `kv session open` prints them.");
    }

    private static Command Open() => CliCommand.Create(
        "open", "Open a session in the shard of a key, and print its id, which is a secret.", [Key, Lifetime], async (arguments, output, stop) =>
        {
            var lifetime = Globals.SecondsOf(arguments, Lifetime, secondsMin: 1);
            await using var client = Globals.ClientOf(arguments);
            var session = await client.Sessions.OpenAsync(Text.ToBytes(arguments.GetRequiredValue(Key)), lifetime, cancellationToken: stop);
            var id = Convert.ToHexString(session.Id.Span);
            if (output.IsJson)
                output.Document(new Fields { { "session", id }, { "lifetime_ms", session.Lifetime.TotalMilliseconds }, { "etag", session.Opened.ToString() } });
            else
                output.Line(id);
            return ExitCodes.Done;
        });

    private static Command KeepAlive() => CliCommand.Create(
        "keep-alive", "Restart the countdown of a session, and print for how many seconds it lives. The exit code is 1 if it has ended.", [Key, Session],
        async (arguments, output, stop) =>
        {
            var session = SessionOf(arguments);
            await using var client = Globals.ClientOf(arguments);
            var left = await client.Sessions.KeepAliveAsync(session, cancellationToken: stop);
            if (output.IsJson)
                output.Document(new Fields { { "left_ms", left.TotalMilliseconds } });
            else if (left > TimeSpan.Zero)
                output.Line(Text.Seconds(left));
            return left > TimeSpan.Zero ? ExitCodes.Done : throw new CliException(ExitCodes.NotFound, "The session has ended.");
        });

    private static Command End() => CliCommand.Create(
        "end", "End a session and remove the keys that it owns, and print how many. The exit code is 1 if it had ended.", [Key, Session],
        async (arguments, output, stop) =>
        {
            var session = SessionOf(arguments);
            await using var client = Globals.ClientOf(arguments);
            var removed = await client.Sessions.EndAsync(session, cancellationToken: stop);
            if (output.IsJson)
                output.Document(new Fields { { "existed", removed is not null }, { "removed", removed ?? 0 } });
            else if (removed is { } count)
                output.Line(count.ToString(CultureInfo.InvariantCulture));
            return removed is not null ? ExitCodes.Done : throw new CliException(ExitCodes.NotFound, "The session had ended.");
        });

    private static KvSession SessionOf(ParseResult arguments) =>
        Parse("SESSION", Text.ToBytes(arguments.GetRequiredValue(Key)), arguments.GetRequiredValue(Session));
}
