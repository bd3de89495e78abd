import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.apache.flink.api.common.JobID;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.ReadableConfig;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.state.CheckpointMetadataOutputStream;
import org.apache.flink.runtime.state.CheckpointStorage;
import org.apache.flink.runtime.state.CheckpointStorageAccess;
import org.apache.flink.runtime.state.CheckpointStorageFactory;
import org.apache.flink.runtime.state.CheckpointStorageLocation;
import org.apache.flink.runtime.state.CompletedCheckpointStorageLocation;
import org.apache.flink.runtime.state.filesystem.FsCheckpointStorageAccess;
import org.apache.flink.runtime.state.filesystem.FsCheckpointStorageLocation;
import org.apache.flink.runtime.state.storage.FileSystemCheckpointStorage;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;

/**
 * Copies "given" into "copied" in SQL, exactly once, with a checkpoint each half a second:
 *
 *   FlinkProgram BOOTSTRAP FOLDER NAMING_STRATEGY [CHECKPOINT]
 *
 * It goes on from CHECKPOINT. Files in FOLDER say what is to happen: with "stop" it stops with a savepoint, whereupon
 * it prints STOPPED. With "pause" no checkpoint begins whose number is above the one in there. With "fail" none can be
 * written. With "hold" the next one is written, and nobody hears of it any more.
 *
 * It runs in this process alone, or in the cluster whose job manager has begun it.
 */
public final class FlinkProgram {
    private static final int FILE_SIZE_THRESHOLD = 20 * 1024;
    private static final int WRITE_BUFFER_SIZE = 4096;

    public static void main(String[] arguments) throws Exception {
        String folder = Path.of(arguments[1]).toUri().toString();
        Configuration settings = new Configuration();
        settings.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(500));
        settings.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, folder);
        settings.set(CheckpointingOptions.CHECKPOINT_STORAGE, HeldStorageFactory.class.getName());
        settings.set(CheckpointingOptions.MAX_RETAINED_CHECKPOINTS, 50);
        settings.set(CheckpointingOptions.TOLERABLE_FAILURE_NUMBER, 1000);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, 1000);
        settings.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_DELAY, Duration.ofMillis(500));
        settings.set(
            CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
            ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        if (arguments.length > 3) {
            settings.set(StateRecoveryOptions.SAVEPOINT_PATH, arguments[3]);
        }
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment(settings);
        environment.setParallelism(2);
        StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
        tables.executeSql(table("given", arguments[0],
            "'properties.group.id' = 'flink', 'scan.startup.mode' = 'earliest-offset'"));
        tables.executeSql(table("copied", arguments[0],
            "'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = 'copier', "
                + "'sink.transaction-naming-strategy' = '" + arguments[2] + "', "
                + "'properties.transaction.timeout.ms' = '300000', 'properties.request.timeout.ms' = '10000', "
                + "'properties.default.api.timeout.ms' = '10000'"));
        JobClient job = tables.executeSql("INSERT INTO copied SELECT line FROM given").getJobClient().orElseThrow();
        System.out.println("STARTED");
        Path stop = Path.of(arguments[1], "stop");
        while (!Files.exists(stop)) {
            if (job.getJobStatus().get().isGloballyTerminalState()) {
                System.out.println("FAILED");
                Runtime.getRuntime().halt(1);
            }
            Thread.sleep(100);
        }
        job.stopWithSavepoint(false, folder + "/savepoints", SavepointFormatType.CANONICAL).get();
        System.out.println("STOPPED");
        Runtime.getRuntime().halt(0);
    }

    private static String table(String topic, String bootstrap, String more) {
        return "CREATE TABLE " + topic + " (line STRING) WITH ('connector' = 'kafka', 'topic' = '" + topic
            + "', 'properties.bootstrap.servers' = '" + bootstrap + "', 'format' = 'raw', " + more + ")";
    }

    /** Makes the storage of checkpoints that the files in their folder can disturb. Flink finds it by its name. */
    public static final class HeldStorageFactory implements CheckpointStorageFactory<HeldStorage> {
        @Override
        public HeldStorage createFromConfig(ReadableConfig settings, ClassLoader loader) {
            return new HeldStorage(settings.get(CheckpointingOptions.CHECKPOINTS_DIRECTORY));
        }
    }

    /** Flink's checkpoints in files, and what the test does to them. */
    public static final class HeldStorage implements CheckpointStorage {
        private final String folder;

        HeldStorage(String folder) {
            this.folder = folder;
        }

        @Override
        public CompletedCheckpointStorageLocation resolveCheckpoint(String pointer) throws IOException {
            return new FileSystemCheckpointStorage(folder).resolveCheckpoint(pointer);
        }

        @Override
        public CheckpointStorageAccess createCheckpointStorage(JobID job) throws IOException {
            org.apache.flink.core.fs.Path path = new org.apache.flink.core.fs.Path(folder);
            return new FsCheckpointStorageAccess(path, null, job, FILE_SIZE_THRESHOLD, WRITE_BUFFER_SIZE) {
                @Override
                public CheckpointStorageLocation initializeLocationForCheckpoint(long number) throws IOException {
                    Path pause = Path.of(path.toUri()).resolve("pause");
                    if (Files.exists(pause) && number > Long.parseLong(Files.readString(pause))) {
                        System.out.println("PAUSED " + number);
                        throw new IOException("the test wants no checkpoint");
                    }
                    return new HeldLocation(
                        (FsCheckpointStorageLocation) super.initializeLocationForCheckpoint(number), path);
                }
            };
        }
    }

    private static final class HeldLocation extends FsCheckpointStorageLocation {
        private final Path folder;

        HeldLocation(FsCheckpointStorageLocation plain, org.apache.flink.core.fs.Path folder) throws IOException {
            super(
                folder.getFileSystem(),
                plain.getCheckpointDirectory(),
                plain.getSharedStateDirectory(),
                plain.getTaskOwnedStateDirectory(),
                plain.getLocationReference(),
                FILE_SIZE_THRESHOLD,
                WRITE_BUFFER_SIZE);
            this.folder = Path.of(folder.toUri());
        }

        @Override
        public CheckpointMetadataOutputStream createMetadataOutputStream() throws IOException {
            if (Files.exists(folder.resolve("fail"))) {
                System.out.println("UNWRITTEN " + getCheckpointDirectory().getName());
                throw new IOException("the test wants no checkpoint");
            }
            return new HeldStream(super.createMetadataOutputStream(), folder.resolve("hold"));
        }
    }

    private static final class HeldStream extends CheckpointMetadataOutputStream {
        private final CheckpointMetadataOutputStream plain;
        private final Path hold;

        HeldStream(CheckpointMetadataOutputStream plain, Path hold) {
            this.plain = plain;
            this.hold = hold;
        }

        @Override
        public CompletedCheckpointStorageLocation closeAndFinalizeCheckpoint() throws IOException {
            CompletedCheckpointStorageLocation written = plain.closeAndFinalizeCheckpoint();
            if (Files.exists(hold)) {
                System.out.println("HELD " + written.getExternalPointer());
                try {
                    Thread.sleep(Long.MAX_VALUE);
                } catch (InterruptedException ended) {
                    throw new IOException(ended);
                }
            }
            return written;
        }

        @Override
        public long getPos() throws IOException {
            return plain.getPos();
        }

        @Override
        public void write(int one) throws IOException {
            plain.write(one);
        }

        @Override
        public void write(byte[] bytes, int from, int length) throws IOException {
            plain.write(bytes, from, length);
        }

        @Override
        public void flush() throws IOException {
            plain.flush();
        }

        @Override
        public void sync() throws IOException {
            plain.sync();
        }

        @Override
        public void close() throws IOException {
            plain.close();
        }
    }
}
