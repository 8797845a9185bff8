using FsCheck;
using FsCheck.Fluent;
using Microsoft.FSharp.Collections;
using Microsoft.FSharp.Core;
using Random = System.Random;

namespace KvCluster.Tests.Storage.Store;

/// <summary>
/// Runs random programs, and reduces one that fails to a short one: FsCheck tries parts of it, then smaller commands, and continues with whatever still fails.
/// </summary>
internal static class ProgramSearch
{
    private const int CommandsMax = 60;

    /// <summary>Runs one program, and throws what is left of it if it fails.</summary>
    /// <inheritdoc cref="Smallest"/>
    public static void Run<T>(Random random, Gen<Command<T>> commands, Func<T> create, Action<T> check)
        where T : IDisposable
    {
        if (Smallest(random, commands, create, check) is { } found)
            throw new Xunit.Sdk.XunitException(found.ToString(), found.Failure);
    }

    /// <summary>Runs one program. Returns what is left of it if it fails, otherwise null.</summary>
    /// <param name="random">Determines the program, and so everything.</param>
    /// <param name="commands">What its commands are chosen from.</param>
    /// <param name="create">Makes the store and its model for a run. They are disposed of at its end, which may find the store damaged.</param>
    /// <param name="check">Compares the store with its model, after each command.</param>
    public static FailingProgram? Smallest<T>(Random random, Gen<Command<T>> commands, Func<T> create, Action<T> check)
        where T : IDisposable
    {
        var programs = Arb.From(
            from count in Gen.Choose(1, CommandsMax)
            from program in commands.ArrayOf(count)
            select program,
            Smaller);
        FailingProgram? found = null;
        var property = Prop.ForAll(programs, program =>
        {
            if (TryRun(program, create, check) is not { } failed)
                return true;
            // FsCheck continues with every program that fails, so the last one is the smallest.
            found = new FailingProgram([.. program.Select(command => command.Text)], failed.Failure, failed.Line, found?.LinesAtFirst ?? program.Length);
            return false;
        });
        var seed = new Replay(new Rnd((ulong)random.NextInt64()), FSharpOption<int>.None);
        Check.One(Config.Quick.WithMaxTest(1).WithReplay(seed).WithRunner(new SilentRunner()), property);
        return found;
    }

    private static (Exception Failure, int Line)? TryRun<T>(Command<T>[] program, Func<T> create, Action<T> check)
        where T : IDisposable
    {
        (Exception Failure, int Line)? failed = null;
        var line = 0;
        var target = create();
        try
        {
            for (; line < program.Length; line++)
            {
                program[line].Run(target);
                check(target);
            }
        }
        catch (Exception failure)
        {
            // Whatever a store throws here is what the program has found.
            failed = (failure, line);
        }
        try
        {
            target.Dispose();
        }
        catch (Exception failure)
        {
            // What failed first counts.
            failed ??= (failure, line);
        }
        return failed;
    }

    private static IEnumerable<Command<T>[]> Smaller<T>(Command<T>[] program)
    {
        for (var count = (program.Length + 1) / 2; count > 0; count /= 2)
        {
            for (var first = 0; first < program.Length; first += count)
                yield return [.. program.AsSpan(0, first), .. program.AsSpan(Math.Min(first + count, program.Length))];
        }
        for (var line = 0; line < program.Length; line++)
        {
            foreach (var command in program[line].Smaller())
                yield return [.. program.AsSpan(0, line), command, .. program.AsSpan(line + 1)];
        }
    }

    /// <summary>Prints nothing: the caller says what was found.</summary>
    private sealed class SilentRunner : IRunner
    {
        public void OnStartFixture(Type t)
        {
        }

        public void OnArguments(int ntest, FSharpList<object> args, FSharpFunc<int, FSharpFunc<FSharpList<object>, string>> every)
        {
        }

        public void OnShrink(FSharpList<object> args, FSharpFunc<FSharpList<object>, string> everyShrink)
        {
        }

        public void OnFinished(string name, TestResult result)
        {
        }
    }
}
